// S3 has the AWS SDK put and get objects through weir, on a night on which the
// loopback server that it talks to misbehaves. The table shows what became of
// the calls. It exits with status 1 if that is not what should have.
//
// It is a module of its own, so that users of weir do not download the SDK.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/weir-go/weir/examples/internal/night"
	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

//ci:race

// part is how large the parts of an upload are.
const part = 1 << 20

// table gives an upload the memory for a second attempt: the SDK's requests
// have no GetBody, and what is longer than Retry.Buffer is sent once.
var table = policy.Policy{
	Settings: policy.Settings{
		Deadline: 2 * time.Second,
		Timeouts: policy.Timeouts{Read: 500 * time.Millisecond},
		Retry:    policy.Retry{BaseDelay: 20 * time.Millisecond, Budget: policy.Off},
	},
	Routes: []policy.Route{
		{Pattern: "/", Name: "s3"},
		{Pattern: "PUT /", Name: "upload", Settings: policy.Settings{Retry: policy.Retry{Buffer: part}}},
	},
}

// connect returns a client of the server at url.
func connect(url string, observer layers.Observer) (*s3.Client, error) {
	weir, err := transport.New(transport.Config{Policy: table, Observer: observer})
	return s3.New(s3.Options{
		HTTPClient: &http.Client{Transport: weir},
		// The SDK makes 3 attempts, and weir makes 3 of each. What the SDK's add is
		// a fresh signature, but one is good for 15 minutes, longer than a call.
		Retryer: aws.NopRetryer{},

		BaseEndpoint: &url,
		UsePathStyle: true,
		Region:       "none",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "none", SecretAccessKey: "none"}, nil
		}),
	}), err
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "s3:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer) error {
	const slowDown = "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
	busy := night.Reply(503, slowDown, "Content-Type", "application/xml")
	var stored []byte
	store := func(_ http.ResponseWriter, r *http.Request) { stored, _ = io.ReadAll(r.Body) }
	server := night.Serve(map[string][]http.HandlerFunc{
		"GET /b/busy":   {busy, busy, night.Reply(200, "hello")},
		"GET /b/silent": {night.Silent, night.Reply(200, "hello")},
		"GET /b/cut":    {night.Cut("hel")},
		"GET /b/gone":   {night.Reply(404, "<Error><Code>NoSuchKey</Code></Error>", "Content-Type", "application/xml")},
		"PUT /b/part":   {busy, night.Silent, store},
		"PUT /b/large":  {busy, store},
		"POST /b/large": {busy},
	})
	defer server.Close()
	watch := night.New()
	client, err := connect(server.URL, watch)
	if err != nil {
		return err
	}

	bucket := aws.String("b")
	get := func(key string) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			object, err := client.GetObject(ctx, &s3.GetObjectInput{Bucket: bucket, Key: &key})
			if err != nil {
				return "", err
			}
			defer object.Body.Close()
			body, err := io.ReadAll(object.Body)
			return string(body), err
		}
	}
	put := func(key string, size int) func(context.Context) (string, error) {
		return func(ctx context.Context) (string, error) {
			data := bytes.Repeat([]byte("s3"), size/2)
			_, err := client.PutObject(ctx, &s3.PutObjectInput{Bucket: bucket, Key: &key, Body: bytes.NewReader(data)})
			if err == nil && !bytes.Equal(stored, data) {
				return fmt.Sprintf("stored %d bytes, and not the right ones", len(stored)), nil
			}
			return fmt.Sprintf("stored %d bytes", len(stored)), err
		}
	}
	return watch.Play(ctx, w, []night.Scene{
		{What: "an object, slow down twice", Do: get("busy"), Sends: "s3: 503 503 200", Got: "hello"},
		{What: "no answer at first", Do: get("silent"), Sends: "s3: read timeout 200", Got: "hello"},
		{What: "no such object", Do: get("gone"), Sends: "s3: 404", Got: "NoSuchKey"},
		{What: "cut off in the middle", Do: get("cut"), Sends: "s3: 200 broken", Got: "unexpected EOF"},
		{What: "an upload of a part", Do: put("part", part), Sends: "upload: 503 read timeout 200", Got: "stored 1048576 bytes"},
		{What: "an upload of twice that", Do: put("large", 2*part), Sends: "upload: 503 (not replayable)", Got: "SlowDown"},
		{
			What: "the beginning of a multipart upload",
			Do: func(ctx context.Context) (string, error) {
				_, err := client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: bucket, Key: aws.String("large")})
				return "", err
			},
			Sends: "s3: 503 (not safe)",
			Got:   "SlowDown",
		},
	})
}
