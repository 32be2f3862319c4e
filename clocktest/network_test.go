package clocktest

import (
	"io"
	"net/http"
	"testing"
	"time"
)

func TestNetwork(t *testing.T) {
	Run(t, func(t *testing.T, c *Clock) {
		n := NewNetwork(t)
		n.Serve("a.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(3 * time.Second)
			io.WriteString(w, r.Proto)
		}))
		client := &http.Client{Transport: n.Transport()}
		for _, url := range []string{"http://a.test/", "https://a.test/"} {
			resp, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			t.Log(string(b), err, resp.Proto, c.Elapsed())
			resp.Body.Close()
		}
	})
}
