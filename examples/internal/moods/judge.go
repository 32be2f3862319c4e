package moods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/weir-go/weir/layers"
	"github.com/weir-go/weir/policy"
	"github.com/weir-go/weir/stream"
)

// Settings are the limits of the examples, small so that a run is short: those
// of a chat otherwise. The deadline is shorter than a healthy answer, since it
// only bounds the opening, and longer than two attempts at one.
func Settings() policy.Settings {
	return policy.Interactive().With(policy.Settings{
		Deadline: 1600 * time.Millisecond,
		Timeouts: policy.Timeouts{Connect: 500 * time.Millisecond},
		Retry:    policy.Retry{BaseDelay: 50 * time.Millisecond, MaxDelay: 50 * time.Millisecond, MaxHint: time.Second},
		Stream: policy.Stream{
			FirstContent: 600 * time.Millisecond,
			Gap:          500 * time.Millisecond,
			ThinkingGap:  700 * time.Millisecond,
			PingedGap:    2 * time.Second,
		},
	})
}

// An Ask asks a model of the server at url, through the client that is shown,
// and reads the answer to its end. It calls word for each word that arrives. The
// response may be nil if there was none.
type Ask func(ctx context.Context, url, model string, word func()) (*http.Response, error)

// answer is what a caller saw.
type answer struct {
	words             int
	first, last, took time.Duration // of the words, and in all
	sends             int
	stall             *stream.StallError // nil: none
	stats             stream.Stats
	guarded           bool
	err               error
}

// verdict is what the caller of a mood should have seen.
type verdict struct {
	model, about string
	words, sends int
	stall        stream.StallKind // "": the answer is complete
	after        time.Duration    // it takes at least so long, and little more
}

// allowance is how much later than due something may be, on a busy machine.
const allowance = time.Second

func verdicts(l policy.Settings) []verdict {
	s := l.Stream
	return []verdict{
		{Healthy, fmt.Sprintf("a word every %v, for longer than the deadline of %v", pace, l.Deadline), words, 1, "", words * pace},
		{Thinker, fmt.Sprintf("thinks for %v behind keepalives, then answers", think), spoken, 1, "", think + spoken*pace},
		{Pings, "says who it is, and then sends keepalives for ever", 0, 2, stream.StallFirstContent, 2 * s.FirstContent},
		{Dies, fmt.Sprintf("falls silent after %d words", spoken), spoken, 1, stream.StallGap, spoken*pace + s.Gap},
		{Silent, "says nothing after its headers, but answers when asked again", words, 2, "", s.FirstContent + words*pace},
	}
}

// Run asks the server in each of its moods, all at once, and writes what came of
// it. It returns an error if a caller did not see what it should have.
func Run(ctx context.Context, w io.Writer, wire Wire, ask Ask) error {
	server := serve(wire)
	defer server.Close()
	list := verdicts(Settings())
	answers := make([]answer, len(list))
	var group sync.WaitGroup
	for i, v := range list {
		group.Go(func() { answers[i] = listen(ctx, server.URL, v.model, ask) })
	}
	group.Wait()
	var wrong []error
	for i, v := range list {
		answers[i].print(w, v)
		if err := v.judge(answers[i]); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", v.model, err))
		}
	}
	return errors.Join(wrong...)
}

func listen(ctx context.Context, url, model string, ask Ask) answer {
	var a answer
	start := time.Now()
	resp, err := ask(ctx, url, model, func() {
		a.last = time.Since(start)
		if a.words++; a.words == 1 {
			a.first = a.last
		}
	})
	a.took, a.err = time.Since(start), err
	a.stall, _ = errors.AsType[*stream.StallError](err)
	if resp != nil {
		a.stats, a.guarded = stream.StatsOf(resp)
		if call, ok := layers.CallFrom(resp.Request.Context()); ok {
			a.sends = call.Attempts()
		}
	}
	if e, ok := errors.AsType[*layers.Error](err); ok {
		a.sends = e.Attempts
	}
	return a
}

func (v verdict) judge(a answer) error {
	var kind stream.StallKind
	if a.stall != nil {
		kind = a.stall.Kind
	}
	switch {
	case a.err != nil && a.stall == nil, kind != v.stall:
		return fmt.Errorf("ended in %v, want stall %q", a.err, v.stall) //nolint:errorlint // It may be nil.
	case a.words != v.words:
		return fmt.Errorf("%d words, want %d", a.words, v.words)
	case a.sends != v.sends:
		return fmt.Errorf("%d sends, want %d", a.sends, v.sends)
	case a.took < v.after || a.took > v.after+allowance:
		return fmt.Errorf("took %v, want %v and little more", a.took, v.after)
	case v.words > 0 && a.stats.Contents < v.words, a.guarded != (v.words > 0):
		return fmt.Errorf("the guard has seen %+v", a.stats)
	}
	return nil
}

func (a answer) print(w io.Writer, v verdict) {
	fmt.Fprintf(w, "%s: %s\n", v.model, v.about)
	line := func(at time.Duration, format string, args ...any) {
		fmt.Fprintf(w, "%8v  %s\n", at.Round(time.Millisecond), fmt.Sprintf(format, args...))
	}
	if a.words > 0 {
		line(a.first, "the first word")
		line(a.last, "word %d", a.words)
	}
	switch {
	case a.err == nil:
		line(a.took, "complete, in send %d", a.sends)
	case a.stall != nil:
		line(a.took, "given up in send %d: %v", a.sends, a.stall)
	default:
		line(a.took, "%v", a.err)
	}
	if s := a.stats; a.guarded {
		fmt.Fprintf(w, "%8s  %s over %s: first content after %v, longest gap %v, of thinking %v; %d contents, %d keepalives, %d bytes\n",
			"guard", s.Dialect, s.Framing, s.FirstContent.Round(time.Millisecond), s.Gap.Round(time.Millisecond), s.ThinkingGap.Round(time.Millisecond),
			s.Contents, s.Keepalives, s.Bytes)
	}
}
