// Openai streams answers through weir with the official client,
// github.com/openai/openai-go, from a loopback server in five moods; see
// examples/chat. It exits with status 1 if a caller did not see what it should
// have.
//
// It is a module of its own, so that users of weir do not download the client.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/weir-go/weir/examples/internal/moods"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

//ci:race

// table guards the streams of one endpoint. What else the client sends has the
// usual treatment.
var table = policy.Policy{
	Routes: []policy.Route{{Pattern: "POST /v1/chat/completions", Name: "chat", Settings: moods.Settings()}},
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "openai: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer) error {
	weir, err := transport.New(transport.Config{Policy: table})
	if err != nil {
		return err
	}
	defer weir.CloseIdleConnections()
	client := openai.NewClient(
		option.WithHTTPClient(&http.Client{Transport: weir}),
		// The client sends again what times out, twice unless told otherwise. It
		// does not know that weir has done so already: 2 attempts would be 6, and
		// it can only do so before the first byte, while weir holds a stream back
		// to its first content.
		option.WithMaxRetries(0),
		option.WithAPIKey("none"),
	)
	return moods.Run(ctx, w, moods.OpenAI, func(ctx context.Context, url, model string, word func()) (*http.Response, error) {
		var resp *http.Response
		stream := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
			Model:    model,
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say some words.")},
		}, option.WithBaseURL(url+"/v1"), option.WithResponseInto(&resp))
		defer func() { _ = stream.Close() }()
		for stream.Next() {
			if choices := stream.Current().Choices; len(choices) > 0 && choices[0].Delta.Content != "" {
				word()
			}
		}
		return resp, stream.Err()
	})
}
