package derive

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"html"
	"math"
	"slices"
	"time"
)

// The picture is a grid of panels, in pixels.
const (
	columns               = 2
	panelW, panelH        = 600, 330
	left, right, top, low = 60, 20, 78, 46 // the margins of a panel
	legend                = 165            // the width of an entry
	perDoubling           = 4              // bars
)

var inks = []struct{ name, ink, dash string }{
	{"", "#555555", "2 3"}, // the name of the quantile
	{"in force", "#c0392b", "7 4"},
	{"derived", "#1e8449", ""},
}

const blue, orange = "#7fa8d1", "#e59866"

// panel is one distribution and its limits.
type panel struct {
	title     string
	quantile  string
	sample    *Sample
	limits    [3]time.Duration // as inks; 0: none
	from, to  float64          // of the axis, as logarithms of nanoseconds
	most      float64
	done, cut map[int]uint64 // by bar
}

// Draw returns a picture of the distributions that the plan was derived from, as
// SVG: of each limit a panel, with the quantile, the limit in force and the one
// derived. It fails if there is nothing to draw.
func (p *Plan) Draw(s *Snapshot) ([]byte, error) {
	var panels []*panel
	for _, l := range p.Limits {
		panel := newPanel(fmt.Sprintf("%v: %s", l.Group, what(l.Quantity)), s.look(l.Group, l.Quantity),
			[3]time.Duration{l.At, l.Present, l.Value})
		panel.quantile = percentile(l.Quantile)
		panels = append(panels, panel)
	}
	if len(panels) == 0 {
		return nil, errors.New("there is nothing to draw")
	}
	var b bytes.Buffer
	rows := (len(panels) + columns - 1) / columns
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12" fill="#222222">`+"\n",
		columns*panelW, rows*panelH)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", columns*panelW, rows*panelH)
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i%columns*panelW, i/columns*panelH)
		p.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes(), nil
}

func what(q Quantity) string {
	switch q {
	case Connect:
		return "the time to connect"
	case Headers:
		return "the wait for headers"
	case Body:
		return "the longest Read of a body"
	case FirstContent:
		return "the wait for the first content"
	case PingedGap:
		return "the gaps with keepalives"
	case ThinkingGap:
		return "the gaps in thinking"
	case ToolGap:
		return "the gaps in the input of tools"
	case Call:
		return "whole calls"
	case Opening:
		return "calls up to the first content"
	}
	return "the gaps between contents"
}

func newPanel(title string, s *Sample, limits [3]time.Duration) *panel {
	p := &panel{title: title, sample: s, limits: limits, from: math.Inf(1), done: map[int]uint64{}, cut: map[int]uint64{}}
	span := func(d time.Duration) {
		if d > 0 {
			p.from, p.to = min(p.from, math.Log10(float64(d))), max(p.to, math.Log10(float64(d)))
		}
	}
	for bars, h := range map[*map[int]uint64]*Histogram{&p.done: &s.Done, &p.cut: &s.Cut} {
		for bin, n := range h.Bins() {
			span(bin.From)
			span(bin.To)
			(*bars)[bar(bin)] += n
			p.most = max(p.most, float64((*bars)[bar(bin)]))
		}
	}
	for _, l := range limits {
		span(l)
	}
	p.from, p.to = p.from-0.1, p.to+0.1
	return p
}

// bar returns the bar that a bin is part of.
func bar(b Bin) int { return int(math.Floor(math.Log2(float64(b.From)) * perDoubling)) }

func (p *panel) x(log float64) float64 {
	return left + (log-p.from)/(p.to-p.from)*(panelW-left-right)
}

// y is logarithmic too, so that the tail can be seen. It begins below one, so
// that one has a height.
func (p *panel) y(n float64) float64 {
	const base = 0.6
	return panelH - low - math.Log(max(n, base)/base)/math.Log(2*p.most/base)*(panelH-low-top)
}

func (p *panel) draw(b *bytes.Buffer) {
	text := func(x, y float64, anchor, ink, s string) {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, ink, html.EscapeString(s))
	}
	line := func(x1, y1, x2, y2 float64, ink string, width float64, dash string) {
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="%g" stroke-dasharray="%s"/>`+"\n", x1, y1, x2, y2, ink, width, dash)
	}
	const floor, ceiling = panelH - low, float64(top)
	fmt.Fprintf(b, `<text x="%d" y="24" font-size="15" font-weight="bold">%s</text>`+"\n", left, html.EscapeString(p.title))

	for n := 1.0; n <= 2*p.most; n *= 10 {
		line(left, p.y(n), panelW-right, p.y(n), "#dddddd", 1, "")
		text(left-6, p.y(n)+4, "end", "#222222", fmt.Sprint(n))
	}
	for decade := math.Floor(p.from); decade <= p.to; decade++ {
		for _, m := range []float64{1, 2, 5} {
			at := decade + math.Log10(m)
			if at < p.from || at > p.to || m > 1 && p.to-p.from > 2.5 {
				continue
			}
			line(p.x(at), floor, p.x(at), floor+4, "#222222", 1, "")
			text(p.x(at), floor+17, "middle", "#222222", time.Duration(math.Round(math.Pow(10, at))).String())
		}
	}
	text((left+panelW-right)/2, panelH-8, "middle", "#222222", "duration (logarithmic)")
	fmt.Fprintf(b, `<text transform="translate(16 %d) rotate(-90)" text-anchor="middle">samples in a bar (logarithmic)</text>`+"\n", (top+panelH-low)/2)

	for i, n := range p.done {
		p.bar(b, i, n, blue, 0)
	}
	for i, n := range p.cut {
		p.bar(b, i, n, orange, 0.25)
	}
	line(left, floor, panelW-right, floor, "#222222", 1, "")
	for i, l := range slices.Backward(p.limits[:]) { // one of two that are equal is dashed, and on top
		if l > 0 {
			at := p.x(math.Log10(float64(l)))
			line(at, ceiling, at, floor, inks[i].ink, 2, inks[i].dash)
		}
	}

	// The legend stands above the plot, where it covers nothing.
	for i, l := range p.limits {
		at := left + float64(i)*legend
		line(at, 42, at+24, 42, inks[i].ink, 2, inks[i].dash)
		name := cmp.Or(inks[i].name, p.quantile)
		if l > 0 {
			name += " " + brief(l).String()
		} else {
			name += ": none"
		}
		text(at+30, 46, "start", inks[i].ink, name)
	}
	for i, k := range []struct {
		ink, name string
		n         uint64
	}{{blue, "succeeded", p.sample.Done.Count()}, {orange, "cut short, after so long", p.sample.Cut.Count()}} {
		at := left + i*legend
		fmt.Fprintf(b, `<rect x="%d" y="56" width="24" height="10" fill="%s"/>`+"\n", at, k.ink)
		text(float64(at+30), 65, "start", "#222222", fmt.Sprintf("%s: %d", k.name, k.n))
	}
}

// bar draws one bar, narrower by a share on either side.
func (p *panel) bar(b *bytes.Buffer, i int, n uint64, ink string, narrower float64) {
	edge := func(i float64) float64 { return p.x(i / perDoubling * math.Log10(2)) }
	from, to := max(edge(float64(i)+narrower), left), min(edge(float64(i)+1-narrower), panelW-right)
	y := p.y(float64(n))
	fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" stroke="white" stroke-width="0.5"/>`+"\n",
		from, y, max(to-from, 0.5), panelH-low-y, ink)
}
