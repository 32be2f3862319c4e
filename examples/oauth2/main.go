// Oauth2 has weir authenticate calls with tokens of golang.org/x/oauth2: a
// token is made within the deadline of the call that needs it, once for all that
// need it, and once more when the server refuses it. Its loopback server has a
// bad night, and the table shows what became of the calls. It exits with status
// 1 if that is not what should have.
//
// It is a module of its own, so that users of weir do not download the package.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/weir-go/weir/examples/internal/night"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// table leaves a token to the call that needs it: that is sent again, whatever
// its method, if it was not sent for want of a token. With retries of its own at
// the endpoint, 3 attempts would be 9.
var table = policy.Policy{
	Settings: policy.Settings{
		Deadline: 3 * time.Second,
		Timeouts: policy.Timeouts{Read: 500 * time.Millisecond},
		Retry:    policy.Retry{BaseDelay: 20 * time.Millisecond, Budget: policy.Off, Check: check},
	},
	Routes: []policy.Route{
		{Pattern: "/", Name: "api"},
		{Pattern: "POST /token", Name: "token", Settings: policy.Settings{Retry: policy.Retry{Enabled: policy.Off}}},
	},
}

var errRefused = errors.New("no token for this client")

// check knows that who is refused a token will be refused again.
func check(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if errors.Is(err, errRefused) {
		return false, nil
	}
	return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
}

// tokens are those of an oauth2 configuration, for layers.Auth. Whatever makes
// a new token each time will do. A TokenSource that keeps one, such as that of
// Config.TokenSource or oauth2.ReuseTokenSource, will not: layers.Auth keeps its
// token already, and asks for another when the server refuses that. For the same
// reason there is no oauth2.Transport.
func tokens(config *clientcredentials.Config, client *http.Client) layers.TokenFunc {
	return func(ctx context.Context) (layers.Token, error) {
		t, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, client))
		if e, answered := errors.AsType[*oauth2.RetrieveError](err); answered {
			err = fmt.Errorf("no token: %s", e.Response.Status) // e's own text repeats the body
			if e.Response.StatusCode < 500 {
				err = fmt.Errorf("%w: %s", errRefused, e.Response.Status)
			}
		}
		if err != nil {
			return layers.Token{}, err
		}
		return layers.Token{Type: t.Type(), Value: t.AccessToken, Expiry: t.Expiry}, nil
	}
}

// connect returns a client for the server at url. What makes a token goes the
// same way as the calls that need it.
func connect(url string, observer layers.Observer) (*http.Client, error) {
	client := new(http.Client)
	weir, err := transport.New(transport.Config{
		Policy:   table,
		Observer: observer,
		Inner: []layers.Layer{layers.Auth(tokens(&clientcredentials.Config{
			ClientID:     "me",
			ClientSecret: "hush",
			TokenURL:     url + "/token",
			// Unless told how to send the secret, oauth2 tries one way and, after any
			// failure, the other, which would be a second attempt of its own.
			AuthStyle: oauth2.AuthStyleInHeader,
		}, client))},
	})
	client.Transport = weir
	return client, err
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "oauth2:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer) error {
	var valid atomic.Value // the token that the API accepts
	valid.Store("one")
	server := night.Serve(map[string][]http.HandlerFunc{
		"POST /token": {
			night.Reply(503, ""), token("one", time.Hour), // for the first scene
			token("two", time.Second),
			night.Silent, night.Silent, night.Silent,
			night.Reply(401, "the secret me:hush is over"),
			token("two", time.Hour),
		},
		"/": {func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer "+valid.Load().(string) {
				w.WriteHeader(401)
				return
			}
			_, _ = io.Copy(w, r.Body)
		}},
	})
	defer server.Close()
	watch := night.New()
	client, err := connect(server.URL, watch)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()

	// call sends a body, and returns the answer, which repeats it.
	call := func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/order", strings.NewReader("hello"))
		if err != nil {
			return "", err
		}
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp.Status + " " + string(body), err
	}
	return watch.Play(ctx, w, []night.Scene{
		{
			What: "8 calls, no token, and its endpoint busy",
			Do: func(ctx context.Context) (got string, err error) {
				var group sync.WaitGroup
				answers := make([]string, 8)
				for i := range answers {
					group.Go(func() { answers[i], _ = call(ctx) })
				}
				group.Wait()
				return strings.Join(slices.Compact(answers), ", "), nil
			},
			Sends: "8 x api: 200 | token: 503 | token: 200",
			Got:   "200 OK hello",
		},
		{
			What: "the token is revoked",
			Do: func(ctx context.Context) (string, error) {
				valid.Store("two")
				return call(ctx)
			},
			Sends: "api: 401 200 | token: 200",
			Got:   "200 OK hello",
		},
		{
			What: "it is over, and its endpoint silent",
			Do: func(ctx context.Context) (string, error) {
				time.Sleep(time.Second)
				return call(ctx)
			},
			Sends: "api: unsent (attempts exhausted) | 3 x token: read timeout",
			Got:   "read timeout",
		},
		{
			What:  "the endpoint refuses the secret",
			Do:    call,
			Sends: "api: unsent (not retryable) | token: 401",
			Got:   "no token for this client: 401 Unauthorized",
		},
		{
			What:  "morning",
			Do:    call,
			Sends: "api: 200 | token: 200",
			Got:   "200 OK hello",
		},
	})
}

// token answers with a token.
func token(value string, lasts time.Duration) http.HandlerFunc {
	return night.Reply(200, fmt.Sprintf(`{"access_token":%q,"token_type":"bearer","expires_in":%v}`, value, lasts.Seconds()))
}
