package layers

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Log returns an [Observer] that writes one line for each call when it has
// ended, its body included, and one for each change of a circuit. A nil logger
// is slog.Default() at the time of the line.
//
// The level follows the outcome: Debug for an answer to the first send; Info for
// one that took more sends, and for a call that its caller gave up; Warn for an
// answer of 429 or of 500 and above, and for a circuit that opens; Error for a
// call that failed. A redirect hop is a call of its own.
//
// The attributes are route, attempts, took, and where there is something to say:
// status, error, reason, first_content, and waits, a group with what the call
// waited for and how long. No URL, header or body is among them.
func Log(l *slog.Logger) Observer { return &logger{to: l} }

type logger struct {
	to    *slog.Logger
	calls sync.Map // of *Call to *record
}

// record is what a logger has seen of a call.
type record struct {
	mu    sync.Mutex
	first time.Duration // until first content
	waits []slog.Attr
	since time.Time // the latest wait began; zero: it is over
}

// Observe implements Observer.
func (l *logger) Observe(ctx context.Context, e Event) {
	if e.Kind == KindBreaker {
		l.circuit(ctx, e)
		return
	}
	c, ok := CallFrom(ctx)
	if !ok {
		return
	}
	if e.Kind == KindStart {
		l.calls.Store(c, new(record))
		return
	}
	r, ok := l.calls.Load(c)
	if !ok {
		return
	}
	if r := r.(*record); r.add(e) { // Nothing else is stored.
		l.calls.Delete(c)
		l.line(ctx, c, e, r)
	}
}

// add notes an event, and reports whether it is the last.
func (r *record) add(e Event) (last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.waits); n > 0 && !r.since.IsZero() {
		r.waits[n-1].Value = slog.DurationValue(r.waits[n-1].Value.Duration() + e.At.Sub(r.since))
		r.since = time.Time{}
	}
	switch e.Kind {
	case KindContent:
		r.first = e.Wait
	case KindWait:
		r.wait(string(e.Phase))
		r.since = e.At
	}
	return e.Kind == KindEnd
}

// wait makes what is waited for the last of the waits.
func (r *record) wait(what string) {
	for i, w := range r.waits {
		if w.Key == what {
			last := len(r.waits) - 1
			r.waits[i], r.waits[last] = r.waits[last], r.waits[i]
			return
		}
	}
	r.waits = append(r.waits, slog.Duration(what, 0))
}

func (l *logger) line(ctx context.Context, c *Call, e Event, r *record) {
	level, text := slog.LevelDebug, "call answered"
	switch {
	case e.Abandoned && (e.Err == nil && e.Status < http.StatusInternalServerError || errors.Is(e.Err, context.Canceled)):
		level, text = slog.LevelInfo, "call given up"
	case e.Err != nil:
		level, text = slog.LevelError, "call failed"
	case e.Status == http.StatusTooManyRequests || e.Status >= http.StatusInternalServerError:
		level = slog.LevelWarn
	case e.Attempt > 1:
		level = slog.LevelInfo
	}
	attrs := append(make([]slog.Attr, 0, 8),
		slog.String("route", e.Route), slog.Int("attempts", e.Attempt), slog.Duration("took", e.At.Sub(c.env.time(c.entered()))))
	if e.Status > 0 {
		attrs = append(attrs, slog.Int("status", e.Status))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", safeText(e.Err)))
	}
	if reason := c.Reason(); reason != "" {
		attrs = append(attrs, slog.String("reason", reason))
	}
	if r.first > 0 {
		attrs = append(attrs, slog.Duration("first_content", r.first))
	}
	if r.waits != nil {
		attrs = append(attrs, slog.Attr{Key: "waits", Value: slog.GroupValue(r.waits...)})
	}
	l.write(ctx, level, text, attrs)
}

func (l *logger) circuit(ctx context.Context, e Event) {
	level := slog.LevelInfo
	attrs := []slog.Attr{slog.String("route", e.Route), slog.String("state", e.State.String())}
	if e.State == StateOpen {
		level = slog.LevelWarn
		if e.Wait > 0 {
			attrs = append(attrs, slog.Duration("for", e.Wait))
		}
	}
	l.write(ctx, level, "circuit changed", attrs)
}

func (l *logger) write(ctx context.Context, level slog.Level, text string, attrs []slog.Attr) {
	to := l.to
	if to == nil {
		to = slog.Default()
	}
	to.LogAttrs(ctx, level, text, attrs...)
}
