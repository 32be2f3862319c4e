package layers

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
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
func Log(l *slog.Logger) Observer {
	to := logger{l}
	return Observers(NewTracer(to.call), ObserverFunc(to.circuit))
}

type logger struct{ *slog.Logger }

func (l logger) call(ctx context.Context, t Trace) {
	level, text := slog.LevelDebug, "call answered"
	switch {
	case t.Abandoned && (t.Err == nil && t.Status < http.StatusInternalServerError || errors.Is(t.Err, context.Canceled)):
		level, text = slog.LevelInfo, "call given up"
	case t.Err != nil:
		level, text = slog.LevelError, "call failed"
	case t.Status == http.StatusTooManyRequests || t.Status >= http.StatusInternalServerError:
		level = slog.LevelWarn
	case t.Attempts > 1:
		level = slog.LevelInfo
	}
	attrs := append(make([]slog.Attr, 0, 8),
		slog.String("route", t.Route), slog.Int("attempts", t.Attempts), slog.Duration("took", t.End.Sub(t.Start)))
	if t.Status > 0 {
		attrs = append(attrs, slog.Int("status", t.Status))
	}
	if t.Err != nil {
		attrs = append(attrs, slog.String("error", safeText(t.Err)))
	}
	if t.Reason != "" {
		attrs = append(attrs, slog.String("reason", t.Reason))
	}
	for _, s := range t.Spans {
		if s.Kind == KindContent {
			attrs = append(attrs, slog.Duration("first_content", s.Start.Sub(t.Start)))
			break
		}
	}
	var waits []slog.Attr
	waited := t.Waited()
	for _, p := range slices.Sorted(maps.Keys(waited)) {
		waits = append(waits, slog.Duration(string(p), waited[p]))
	}
	if waits != nil {
		attrs = append(attrs, slog.Attr{Key: "waits", Value: slog.GroupValue(waits...)})
	}
	l.write(ctx, level, text, attrs)
}

func (l logger) circuit(ctx context.Context, e Event) {
	if e.Kind != KindBreaker {
		return
	}
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

func (l logger) write(ctx context.Context, level slog.Level, text string, attrs []slog.Attr) {
	to := l.Logger
	if to == nil {
		to = slog.Default()
	}
	to.LogAttrs(ctx, level, text, attrs...)
}
