package redis_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
)

// certificate writes one, and its key, for a server on loopback.
func certificate(t testing.TB) (files []string, client *tls.Config) {
	t.Helper()
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	pair := s.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for kind, bytes := range map[string][]byte{"CERTIFICATE": pair.Certificate[0], "PRIVATE KEY": key} {
		file := filepath.Join(t.TempDir(), "pem")
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, map[string]string{"CERTIFICATE": "--tls-cert-file", "PRIVATE KEY": "--tls-key-file"}[kind], file)
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return files, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
}

// TestClients: whatever the client is, and by whatever way it asks Redis, many sends
// at once have what is there, a Redis that was killed is asked again once it is back,
// and news is heard.
func TestClients(t *testing.T) {
	t.Parallel()
	files, config := certificate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secure := l.Addr().String()
	_, port, _ := net.SplitHostPort(secure)
	l.Close()
	for what, c := range map[string]struct {
		args   []string
		client func(s *server) goredis.UniversalClient
	}{
		"RESP2": {nil, func(s *server) goredis.UniversalClient {
			return goredis.NewClient(&goredis.Options{Addr: s.addr, Protocol: 2, DialerRetries: 1})
		}},
		"a pool of one": {nil, func(s *server) goredis.UniversalClient {
			return goredis.NewClient(&goredis.Options{Addr: s.addr, PoolSize: 1, MaxActiveConns: 1, PipelinePoolSize: -1, DialerRetries: 1})
		}},
		"a unix socket": {[]string{"--unixsocket", "redis.sock"}, func(s *server) goredis.UniversalClient {
			return goredis.NewClient(&goredis.Options{Network: "unix", Addr: filepath.Join(s.dir, "redis.sock"), DialerRetries: 1})
		}},
		"TLS": {append(files, "--tls-port", port, "--tls-auth-clients", "no"), func(*server) goredis.UniversalClient {
			return goredis.NewClient(&goredis.Options{Addr: secure, TLSConfig: config, DialerRetries: 1})
		}},
		"a ring": {nil, func(s *server) goredis.UniversalClient {
			return goredis.NewRing(&goredis.RingOptions{Addrs: map[string]string{"one": s.addr}, DialerRetries: 1})
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, c.args...)
			p := newPair(t, policy.Rate{PerSecond: 0.001, Burst: 50}, func() goredis.UniversalClient { return c.client(s) })
			var group sync.WaitGroup
			for i := range 50 {
				group.Go(func() {
					equal(t, "there is one", p.bucket[i%2].Take(1), true)
					_, admitted := send(p.circuits[i%2].circuit(name(), policy.Breaker{Failures: 1, Probes: 1}), new(layers.Pass))
					equal(t, "a send is admitted", admitted, true)
				})
			}
			group.Wait()
			equal(t, "there is another", p.bucket[0].Take(1), false)
			p.hears(t)
			p.wait(t, "")
			s.kill()
			p.wait(t, "down")
			s.start()
			p.wait(t, "down up")
			p.hears(t)
			equal(t, "Redis is asked", s.client().Exists(context.Background(), "weir:{weir}:processes").Val(), 1)
		})
	}
}
