package clocktest

import (
	"io"
	"net/http"
	"testing"
	"time"
)

func TestUpstream(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		u := NewUpstream(t, c, Reply(200).After(3*time.Second).Header("A", "b").Body("hello"),
			Reply(200).Chunks(Chunk{time.Second, "a"}, Chunk{2 * time.Second, "b"}))
		client := &http.Client{Transport: u, Timeout: 10 * time.Second}
		for range 2 {
			resp, err := client.Get("http://a.test/x")
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			t.Log(string(b), err, resp.Header, resp.ContentLength, c.Elapsed())
			resp.Body.Close()
		}
		t.Log(u.Requests())
	})
}
