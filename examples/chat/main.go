// Chat streams answers of a model through weir from a loopback server that
// speaks the wire of openai-chat in five moods: it is healthy, thinks slowly,
// sends nothing but keepalives, dies halfway, or is silent after its headers.
// For each it prints what the caller saw, when, and what the guard has counted.
// It exits with status 1 if a caller did not see what it should have.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/weir-go/weir/examples/internal/moods"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/transport"
)

// table guards the streams of one endpoint. What else the client sends has the
// usual treatment.
var table = policy.Policy{
	Routes: []policy.Route{{Pattern: "POST /v1/chat/completions", Name: "chat", Settings: moods.Settings()}},
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "chat: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer) error {
	weir, err := transport.New(transport.Config{Policy: table})
	if err != nil {
		return err
	}
	defer weir.CloseIdleConnections()
	client := &http.Client{Transport: weir}
	return moods.Run(ctx, w, moods.OpenAI, func(ctx context.Context, url, model string, word func()) (*http.Response, error) {
		return ask(ctx, client, url+"/v1/chat/completions", model, word)
	})
}

// ask is a client as small as can be: no more than reads the words.
func ask(ctx context.Context, client *http.Client, url, model string, word func()) (*http.Response, error) {
	prompt, err := json.Marshal(map[string]any{"model": model, "stream": true})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(prompt))
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		if !isData || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			return resp, err
		}
		if len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != "" {
			word()
		}
	}
	return resp, lines.Err()
}
