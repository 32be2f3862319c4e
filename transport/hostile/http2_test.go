package hostile

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// peer is the server's end of an HTTP/2 connection.
type peer struct {
	*http2.Framer

	stream uint32 // of the latest request
}

// speaks is a server that shakes hands in HTTP/2, and calls f for each request.
// It goes on until f, or the client, has had enough.
func speaks(f func(p *peer) error) func(net.Conn) {
	return func(c net.Conn) {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(c, preface); err != nil {
			return
		}
		p := &peer{Framer: http2.NewFramer(c, c)}
		p.SetReuseFrames()
		err := p.WriteSettings()
		for err == nil {
			var frame http2.Frame
			if frame, err = p.ReadFrame(); err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					err = p.WriteSettingsAck()
				}
			case *http2.HeadersFrame:
				p.stream = frame.StreamID
				err = f(p)
			}
		}
	}
}

// fields encodes headers as one block.
func fields(pairs ...string) []byte {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for i := 0; i < len(pairs); i += 2 {
		_ = e.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]})
	}
	return block.Bytes()
}

// answer sends headers.
func (p *peer) answer(pairs ...string) error { return p.send(fields(pairs...), true) }

func (p *peer) send(block []byte, end bool) error {
	return p.WriteHeaders(http2.HeadersFrameParam{StreamID: p.stream, BlockFragment: block, EndHeaders: end})
}

// heavy answers with n bytes of headers and no body.
func (p *peer) heavy(n int) error {
	block := fields(":status", "200", "x-heavy", string(bytes.Repeat([]byte("~"), n)))
	_ = p.send(block[:1<<14], false)
	for block = block[1<<14:]; len(block) > 1<<14; block = block[1<<14:] {
		_ = p.WriteContinuation(p.stream, false, block[:1<<14])
	}
	_ = p.WriteContinuation(p.stream, true, block)
	return p.WriteData(p.stream, true, nil)
}

// forever calls f until it fails.
func forever(f func() error) error {
	for {
		if err := f(); err != nil {
			return err
		}
	}
}

func TestHTTP2Servers(t *testing.T) {
	const noError, refused, internal, calm = http2.ErrCodeNo, http2.ErrCodeRefusedStream, http2.ErrCodeInternal, http2.ErrCodeEnhanceYourCalm
	const again = 6 // HTTP/2 does not say that it was for the headers, so they are met in each send
	block := make([]byte, 1<<10)
	early, more := fields(":status", "103", "link", "</style.css>"), bytes.Repeat(fields("x-y", "z"), 100)
	for _, test := range []struct {
		name      string
		serve     func(net.Conn)
		want      string
		mebibytes int
	}{
		{"no settings", waits, "deadline", 1},
		{"HTTP/1", says(ok+"\r\n", waits), "error", 1},
		{"silence", speaks(func(*peer) error { return nil }), "deadline", 1},
		{"headers, then silence", speaks(func(p *peer) error { return p.answer(":status", "200") }), "deadline", 1},
		// net/http comes again by itself, each time on a connection of its own.
		{"GOAWAY", speaks(func(p *peer) error { return p.WriteGoAway(0, noError, nil) }), "error", 64},
		{"GOAWAY that took the request", speaks(func(p *peer) error { return p.WriteGoAway(p.stream, noError, nil) }), "deadline", 1},
		{"GOAWAY in anger", speaks(func(p *peer) error { return p.WriteGoAway(p.stream, calm, []byte("calm down")) }), "error", 4},
		{"GOAWAY in the body", speaks(func(p *peer) error {
			_ = p.answer(":status", "200")
			_ = p.WriteData(p.stream, false, block)
			return p.WriteGoAway(p.stream, internal, nil)
		}), "error", 1},
		{"RST_STREAM", speaks(func(p *peer) error { return p.WriteRSTStream(p.stream, internal) }), "error", 1},
		{"RST_STREAM that asks to come again", speaks(func(p *peer) error { return p.WriteRSTStream(p.stream, refused) }), "error", 4},
		{"RST_STREAM in the body", speaks(func(p *peer) error {
			_ = p.answer(":status", "200")
			_ = p.WriteData(p.stream, false, block)
			return p.WriteRSTStream(p.stream, internal)
		}), "error", 1},
		{"early end", speaks(func(p *peer) error {
			_ = p.answer(":status", "200", "content-length", "5000")
			return p.WriteData(p.stream, true, block)
		}), "cut, error", 1},
		{"data beyond the window", speaks(func(p *peer) error {
			_ = p.answer(":status", "200")
			return forever(func() error { return p.WriteData(p.stream, false, block) })
		}), "error", 8},
		{"one 1xx after the other", speaks(func(p *peer) error {
			return forever(func() error { return p.send(early, true) })
		}), "error", again * 16},
		{"CONTINUATION without end", speaks(func(p *peer) error {
			_ = p.send(fields(":status", "200"), false)
			return forever(func() error { return p.WriteContinuation(p.stream, false, more) })
		}), "error", again * 16},
		{"half a MiB of headers", speaks(func(p *peer) error { return p.heavy(mebibyte / 2) }), "200", 8},
		{"2 MiB of headers", speaks(func(p *peer) error { return p.heavy(2 * mebibyte) }), "error", again * 16},
		{"pings without end", speaks(func(p *peer) error {
			return forever(func() error { return p.WritePing(false, [8]byte{}) })
		}), "error", 16},
		{"settings without end", speaks(func(p *peer) error {
			return forever(func() error { return p.WriteSettings() })
		}), "error", 16},
	} {
		t.Run(test.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			s := newServer(t, test.serve)
			defer s.stop()
			meets(t, s.Addr().String(), "/", test.want, test.mebibytes, func(base *http.Transport) {
				base.Protocols = new(http.Protocols)
				base.Protocols.SetUnencryptedHTTP2(true)
			})
		})
	}
}

// TestRefusedUnprocessed: what a server says it did nothing with is sent again,
// whatever the method and whatever the body is read from.
func TestRefusedUnprocessed(t *testing.T) {
	for name, refuse := range map[string]func(p *peer) error{
		"RST_STREAM":      func(p *peer) error { return p.WriteRSTStream(p.stream, http2.ErrCodeRefusedStream) },
		"GOAWAY":          func(p *peer) error { return p.WriteGoAway(0, http2.ErrCodeNo, nil) },
		"GOAWAY in anger": func(p *peer) error { return p.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, nil) },
	} {
		for kind, body := range map[string]func() io.Reader{
			"no body":   func() io.Reader { return nil },
			"in memory": func() io.Reader { return strings.NewReader("x") },
			"a stream":  func() io.Reader { return io.LimitReader(strings.NewReader("x"), 1) },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
				var asked atomic.Int32
				s := newServer(t, speaks(func(p *peer) error {
					if asked.Add(1) == 1 {
						return refuse(p)
					}
					return p.WriteHeaders(http2.HeadersFrameParam{StreamID: p.stream, BlockFragment: fields(":status", "200"), EndHeaders: true, EndStream: true})
				}))
				defer s.stop()
				base := transport.Base()
				base.Protocols = new(http.Protocols)
				base.Protocols.SetUnencryptedHTTP2(true)
				tr, err := transport.New(transport.Config{Base: base, Policy: policy.Policy{Settings: policy.Settings{Deadline: hang}}})
				if err != nil {
					t.Fatal(err)
				}
				defer tr.CloseIdleConnections()
				resp, err := tr.Client().Post("http://"+s.Addr().String(), "text/plain", body())
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK || asked.Load() != 2 {
					t.Errorf("status %d after %d sends", resp.StatusCode, asked.Load())
				}
			})
		}
	}
}
