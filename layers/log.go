package layers

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"
)

// Log returns an [Observer] that writes one line for each call when it has
// ended, its body included, and one for each change of a circuit. A nil logger
// is slog.Default() at the time of the line.
//
// The level follows the outcome: Warn for an answer of 429 or of 500 and above, and
// for a circuit that opens; Debug for another answer to the first send; Info for one
// that took more sends, and for a call that its caller gave up, or whose body it
// closed early; Error for a call that failed. A redirect hop is a call of its own,
// but attempts counts the sends of the hops before it too, as [Call.Attempts] does.
//
// The attributes are route, attempts, took, and where there is something to say:
// status, error, reason, owner of a deadline that left no time, if that is not the
// policy's, first_content since the call began, opaque for a stream whose events cannot
// be told apart, and two groups that account for the time: waits, with what the call
// waited for and how long, and phases, with how long its sends were in each phase,
// from a millisecond on. They are the [Trace.Parts] of the call: body among the
// phases runs from the headers to the end of the body, the caller's own time between
// two Reads included, and layers among the waits is the time in layers of yours. What
// sends that compete do at the same time adds up. Those of a circuit are route, state,
// for, why, forced, and origin unless its Key is a function of yours. No URL, header or
// body is among them.
func Log(l *slog.Logger) Observer {
	to := logger{l}
	return Observers(NewTracer(to.call), ObserverFunc(to.circuit))
}

type logger struct{ *slog.Logger }

func (l logger) call(ctx context.Context, t Trace) {
	level, text := slog.LevelDebug, "call answered"
	switch {
	case t.Abandoned && (t.Err == nil && !bad(t.Status) || errors.Is(t.Err, context.Canceled)):
		level, text = slog.LevelInfo, "call given up"
		if t.Err == nil && t.Status > 0 {
			text = "body closed early"
		}
	case t.Err != nil:
		level, text = slog.LevelError, "call failed"
	case bad(t.Status):
		level = slog.LevelWarn
	case t.sends() > 1:
		level = slog.LevelInfo
	}
	if !l.to().Enabled(ctx, level) {
		return
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
	if c, ok := CallFrom(ctx); ok && t.Reason == ReasonDeadline && c.Owner() != OwnerPolicy {
		attrs = append(attrs, slog.String("owner", string(c.Owner())))
	}
	if i := slices.IndexFunc(t.Spans, func(s Span) bool { return s.Kind == KindContent }); i >= 0 {
		attrs = append(attrs, slog.Duration("first_content", t.Spans[i].Start.Sub(t.Start)))
	}
	if slices.ContainsFunc(t.Spans, func(s Span) bool { return s.Kind == KindOpaque }) {
		attrs = append(attrs, slog.Bool("opaque", true))
	}
	parts := t.Parts()
	attrs = append(attrs, group("waits", total(parts, KindWait), 0)...)
	attrs = append(attrs, group("phases", total(parts, KindPhase), time.Millisecond)...)
	l.to().LogAttrs(ctx, level, text, attrs...)
}

// bad reports a status that a server has in trouble, however much of the body its
// caller wanted.
func bad(status int) bool {
	return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

// group returns what took so long at least, as an attribute; none if nothing did.
func group(name string, took map[Phase]time.Duration, least time.Duration) []slog.Attr {
	var list []slog.Attr
	for _, p := range slices.Sorted(maps.Keys(took)) {
		if took[p] >= least {
			list = append(list, slog.Duration(string(p), took[p]))
		}
	}
	if list == nil {
		return nil
	}
	return []slog.Attr{{Key: name, Value: slog.GroupValue(list...)}}
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
	if b := e.Breaker; b != nil {
		s := b.Status()
		if b.key.scheme != "" {
			attrs = append(attrs, slog.String("origin", s.Key))
		}
		if e.Forced {
			attrs = append(attrs, slog.Bool("forced", true))
		} else if e.State == StateOpen {
			attrs = append(attrs, slog.String("why", s.Why))
		}
	}
	l.to().LogAttrs(ctx, level, "circuit changed", attrs...)
}

func (l logger) to() *slog.Logger {
	if l.Logger == nil {
		return slog.Default()
	}
	return l.Logger
}
