package clocktest

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing/synctest"
	"time"
)

// Serve lets a host, which has no port in its name, answer with h: on its port 80
// over HTTP/1, or HTTP/2 if the client begins so, and on its port 443 over TLS and HTTP/2, or HTTP/1 if the client does
// not offer HTTP/2. At the test's end the contexts of its requests end, the server is
// closed, and as much time passes as handlers take to return.
func (n *Network) Serve(host string, h http.Handler) *http.Server {
	if strings.Contains(host, ":") && net.ParseIP(host) == nil {
		panic("clocktest: Serve takes a host without a port, and this is " + host + "; Listen takes any port")
	}
	handlers := new(sync.WaitGroup)
	handlers.Add(1) // the server itself
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlers.Add(1)
			defer handlers.Done()
			h.ServeHTTP(w, r)
		}),
		Protocols:   protocols(),
		BaseContext: func(net.Listener) context.Context { return n.t.Context() },
		ErrorLog:    log.New(n.t.Output(), "", 0),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{certificate(host)},
			// Without it, Serve would decide for ServeTLS too that HTTP/2 is off.
			NextProtos: []string{"h2", "http/1.1"},
		},
	}
	plain, secure := n.Listen(net.JoinHostPort(host, "80")), n.Listen(net.JoinHostPort(host, "443"))
	go func() { _ = server.Serve(plain) }()
	go func() { _ = server.ServeTLS(secure, "", "") }()
	n.t.Cleanup(func() {
		server.Close()
		synctest.Wait() // no handler begins any more
		handlers.Done()
		handlers.Wait()
	})
	return server
}

// protocols are all that there are.
func protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// Transport returns an http.Transport that dials the hosts of n, trusts their
// certificates, and is zero otherwise but for HTTP/2 over TLS.
func (n *Network) Transport() *http.Transport {
	return &http.Transport{
		DialContext:       n.DialContext,
		TLSClientConfig:   n.TLSClientConfig(),
		ForceAttemptHTTP2: true,
	}
}

// TLSClientConfig returns a configuration that trusts the servers of Serve.
func (n *Network) TLSClientConfig() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(authority().Leaf)
	return &tls.Config{RootCAs: pool}
}

// authority is what signs the servers' certificates.
var authority = sync.OnceValue(func() tls.Certificate {
	return sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true}, nil)
})

// certificate makes a certificate for a host, a name or an IP address.
func certificate(host string) tls.Certificate {
	leaf := &x509.Certificate{}
	if ip := net.ParseIP(host); ip != nil {
		leaf.IPAddresses = []net.IP{ip}
	} else {
		leaf.DNSNames = []string{host}
	}
	ca := authority()
	return sign(leaf, &ca)
}

// sign issues a certificate, signed by itself if there is no ca. Its key is its own.
func sign(cert *x509.Certificate, ca *tls.Certificate) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	cert.SerialNumber = big.NewInt(1)
	cert.NotBefore = time.Unix(0, 0)
	cert.NotAfter = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	parent, signer := cert, crypto.Signer(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey.(crypto.Signer)
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), signer)
	check(err)
	leaf, err := x509.ParseCertificate(der)
	check(err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// check panics if a certificate could not be made: only a broken build could fail.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
