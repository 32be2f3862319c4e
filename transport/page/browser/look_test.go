package browser

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// medium has pages shown on a medium, "print" or "" for a screen, by who prefers
// a color scheme.
func medium(name, scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Media: name, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
}

// scripts allows scripts or not.
func scripts(on bool) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
		return err
	})
}

// TestLooks takes pictures of each view, light and dark, at a phone's width and
// in print. None is wider than its window, and what is printed is dark on light.
func TestLooks(t *testing.T) {
	s := newSite(t)
	ctx, shoot := browse(t)
	for range 3 {
		s.call(t, "/retried")
	}
	s.down.Store(true)
	for range 3 {
		s.call(t, "/flaky")
	}
	for _, look := range []struct {
		name, media, scheme string
		width               int64
	}{{"light", "", "light", 1100}, {"dark", "", "dark", 1100}, {"phone", "", "light", 390}, {"print", "print", "dark", 800}} {
		run(t, ctx, chromedp.EmulateViewport(look.width, 900))
		run(t, ctx, medium(look.media, look.scheme))
		for name, view := range map[string]string{
			"state": "", "calls": "calls", "policy": "policy?method=GET&url=http://api.example/retried", "distributions": "distributions", "call": "calls",
		} {
			open(t, ctx, s.url+view)
			if name == "call" {
				click(t, ctx, "tbody a")
				sees(t, ctx, "A call of")
			}
			shoot(name + "-" + look.name)
			if over := run(t, ctx, chromedp.Evaluate[int](`document.documentElement.scrollWidth - window.innerWidth`)); over > 0 {
				t.Errorf("%s, %s: it is %d pixels too wide", name, look.name, over)
			}
			paper := run(t, ctx, chromedp.Evaluate[string](`getComputedStyle(document.body).backgroundColor`))
			if dark := paper != "rgb(255, 255, 255)"; dark != (look.name == "dark") {
				t.Errorf("%s, %s: the background is %s", name, look.name, paper)
			}
		}
	}
}

// TestWithoutScripts reads the page, and forces a circuit, in a browser that runs
// no script.
func TestWithoutScripts(t *testing.T) {
	s := newSite(t)
	ctx, _ := browse(t)
	s.call(t, "/flaky")
	run(t, ctx, scripts(false))
	open(t, ctx, s.url)
	sees(t, ctx, "/flaky closed")
	run(t, ctx, chromedp.KeyEvent(strings.Repeat("\t", 7)+"\r")) // to the button, and on it
	sees(t, ctx, "open forced")
}

// TestKeyboard reaches what there is by keys alone, and keeps the focus, and how
// far a table was scrolled, while the view changes.
func TestKeyboard(t *testing.T) {
	s := newSite(t)
	ctx, _ := browse(t)
	s.call(t, "/flaky")
	run(t, ctx, chromedp.EmulateViewport(390, 900))
	open(t, ctx, s.url)
	sees(t, ctx, "/flaky closed")
	tab := func() string {
		t.Helper()
		run(t, ctx, chromedp.KeyEvent("\t"))
		return run(t, ctx, chromedp.Evaluate[string](`document.activeElement.getAttribute("aria-label") || document.activeElement.textContent`))
	}
	for _, want := range []string{"To the content", "State", "Calls", "Policy", "Distributions", "Circuits", "force open"} {
		if got := tab(); len(got) < len(want) || got[:len(want)] != want {
			t.Fatalf("the focus is on %q, want %q", got, want)
		}
	}
	run(t, ctx, chromedp.Evaluate[int](`document.querySelector(".wide").scrollLeft = 50`))
	run(t, ctx, chromedp.Evaluate[int](`window.was = document.activeElement, 0`))
	s.down.Store(true)
	for range 3 {
		s.call(t, "/flaky")
	}
	sees(t, ctx, "2 failures in a row")
	if !run(t, ctx, chromedp.Evaluate[bool](`document.activeElement === window.was && document.querySelector(".wide").scrollLeft === 50`)) {
		t.Error("the focus or the place in the table is lost")
	}
}

// TestOrderOfCalls has the rows of a list follow what the server sends, by name.
func TestOrderOfCalls(t *testing.T) {
	s := newSite(t)
	ctx, _ := browse(t)
	s.call(t, "/retried")
	open(t, ctx, s.url+"calls")
	sees(t, ctx, "retried")
	rows := func() []string {
		return run(t, ctx, chromedp.Evaluate[[]string](`Array.from(document.querySelectorAll("tbody a")).map(a => a.getAttribute("href"))`))
	}
	first := rows()
	run(t, ctx, chromedp.Evaluate[int](`document.querySelector("tbody a").focus(), 0`))
	for range 2 { // as many as keep the first among the slowest
		s.call(t, "/evil")
		s.call(t, "/retried")
	}
	time.Sleep(2500 * time.Millisecond) // two changes
	shown := rows()
	focused := run(t, ctx, chromedp.Evaluate[string](`document.activeElement.getAttribute("href")`))
	if len(first) != 1 || focused != first[0] {
		t.Errorf("the focus went from %v to %s", first, focused)
	}
	open(t, ctx, s.url+"calls")
	if anew := rows(); len(anew) < 5 || len(shown) != len(anew) {
		t.Errorf("shown are %v, want %v", shown, anew)
	} else {
		for i := range anew {
			if shown[i] != anew[i] {
				t.Errorf("row %d is %s, want %s", i, shown[i], anew[i])
			}
		}
	}
}

// TestFocusMoves has a row that changes its place keep the focus.
func TestFocusMoves(t *testing.T) {
	s := newSite(t)
	ctx, _ := browse(t)
	for range 2 {
		s.call(t, "/evil")
	}
	open(t, ctx, s.url+"calls")
	sees(t, ctx, "Failed")
	first := run(t, ctx, chromedp.Evaluate[string](`(() => {
		const row = document.querySelector("tbody tr");
		row.parentNode.append(row); // from where the next change takes it back
		row.querySelector("a").focus();
		return row.dataset.key;
	})()`))
	for range 50 {
		time.Sleep(100 * time.Millisecond)
		if run(t, ctx, chromedp.Evaluate[string](`document.querySelector("tbody tr").dataset.key`)) == first {
			break
		}
	}
	if at := run(t, ctx, chromedp.Evaluate[string](`document.querySelector("tbody tr").dataset.key + " " + document.activeElement.getAttribute("href")`)); at != first+" calls/"+first {
		t.Errorf("the row of the focus, %s, was moved, and it is on %s", first, at)
	}
}
