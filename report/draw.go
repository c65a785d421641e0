package report

import (
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// axis is a range of values and the marks that explain it.
type axis struct {
	min, max float64
	ticks    []tick
	label    string
}

type tick struct {
	at    float64
	lines []string
}

// numberAxis is an axis with about as many marks as told, from 0, or the last one that is not above lo, to the first
// one that is not below hi.
func numberAxis(lo, hi float64, most int) axis {
	lo, hi = min(lo, 0), max(hi, 0)
	if hi == lo {
		hi = 1
	}
	step := (hi - lo) / float64(most)
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, nice := range []float64{1, 2, 5, 10} {
		if nice*power >= step*(1-1e-9) {
			step = nice * power
			break
		}
	}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	const slip = 1e-9 // what rounding may do to a quotient of two multiples
	first, last := math.Floor(lo/step+slip), math.Ceil(hi/step-slip)
	a := axis{min: first * step, max: last * step}
	for k := first; k <= last; k++ {
		a.ticks = append(a.ticks, tick{k * step, []string{strconv.FormatFloat(k*step, 'f', decimals, 64)}})
	}
	return a
}

// timeTicks marks round instants of the span, given in seconds: at most nine. The date, or the year, stands below the
// first mark and wherever it is new.
func timeTicks(start time.Time, span float64) (ticks []tick) {
	const day = 24 * time.Hour
	const most = 8 // intervals
	for _, step := range []time.Duration{
		10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
		15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day, 14 * day,
	} {
		if span > most*step.Seconds() {
			continue
		}
		small, large := "15:04", "2 Jan 2006"
		switch {
		case step < time.Minute:
			small = "15:04:05"
		case step >= day:
			small, large = "2 Jan", "2006"
		}
		return marks(start, span, small, large, start.Truncate(step), func(t time.Time) time.Time {
			return t.Add(step)
		})
	}
	months := 1
	for _, months = range []int{1, 2, 3, 6, 12, 24, 60, 120, 240, 600, 1200} {
		if span <= most*float64(months)*30*day.Seconds() {
			break
		}
	}
	january := time.Date(start.Year(), time.January, 1, 0, 0, 0, 0, time.UTC)
	return marks(start, span, "Jan", "2006", january, func(t time.Time) time.Time { return t.AddDate(0, months, 0) })
}

func marks(start time.Time, span float64, small, large string, t time.Time,
	next func(time.Time) time.Time,
) (ticks []tick) {
	var last string
	for ; ; t = next(t) {
		at := t.Sub(start).Seconds()
		if at > span {
			return ticks
		}
		if at < 0 {
			continue
		}
		lines := []string{t.Format(small)}
		if l := t.Format(large); l != last {
			lines, last = append(lines, l), l
		}
		ticks = append(ticks, tick{at, lines})
	}
}

const (
	fontSize   = 11 // points, as all lengths below
	lineHeight = 13
	padding    = 10 // between the edge of a figure and what is on it
	tickLength = 4
	gap        = 16 // between panels
)

// pen draws on a canvas in one font.
type pen struct {
	draw.Canvas
	face font.Face
}

func newPen(c draw.Canvas) pen {
	c.SetColor(color.White)
	c.Fill(c.Path()) // or it would be black on black where the viewer's page is dark
	c.Rectangle = draw.Crop(c, padding, -padding, padding, -padding).Rectangle
	return pen{c, plot.DefaultTextHandler.Cache().Lookup(font.Font{
		Typeface: plot.DefaultFont.Typeface, Variant: "Sans",
	}, fontSize)}
}

// text writes s with its baseline through (x, y), there the left end if align is 0 and the right end if it is 1.
func (p pen) text(x, y vg.Length, align float64, s string) {
	p.SetColor(color.Black)
	p.FillString(p.face, vg.Point{X: x - vg.Length(align)*p.face.Width(s), Y: y}, s)
}

// turned is text turned counterclockwise around (x, y).
func (p pen) turned(x, y vg.Length, align, angle float64, s string) {
	p.Push()
	p.Translate(vg.Point{X: x, Y: y})
	p.Rotate(angle)
	p.text(0, 0, align, s)
	p.Pop()
}

// fitted is s, or as much of its beginning and end as is not wider than width.
func (p pen) fitted(s string, width vg.Length) string {
	runes := []rune(s)
	for n := len(runes) - 1; n > 0 && p.face.Width(s) > width; n-- {
		s = string(runes[:(n+1)/2]) + "…" + string(runes[len(runes)-n/2:])
	}
	return s
}

// widest returns the width of the widest string.
func (p pen) widest(all ...string) (w vg.Length) {
	for _, s := range all {
		w = max(w, p.face.Width(s))
	}
	return w
}

// stack draws panels above each other over one horizontal axis, and the keys above them, in rows of their own.
func (p pen) stack(panels []panel, x axis, keys ...[]key) {
	axes := make([]axis, len(panels))
	for i := range panels {
		axes[i] = panels[i].axis()
	}
	margin, under := p.margin(axes), 1
	for _, t := range x.ticks {
		under = max(under, len(t.lines))
	}
	area := draw.Crop(p.Canvas, margin, -3*padding, tickLength+vg.Length(under+1)*lineHeight+padding, 0).Rectangle
	for _, row := range keys {
		area.Max.Y = p.legend(area, row)
	}
	area.Max.Y -= padding
	height := (area.Size().Y - vg.Length(len(panels)-1)*gap) / vg.Length(len(panels))
	for i := range panels {
		top := area.Max.Y - vg.Length(i)*(height+gap)
		f := frame{pen: p, x: x, y: axes[i], margin: margin, Rectangle: vg.Rectangle{
			Min: vg.Point{X: area.Min.X, Y: top - height}, Max: vg.Point{X: area.Max.X, Y: top},
		}}
		f.grid()
		f.axes(panels[i].label...)
		f.lines(panels[i].lines)
		if i == len(panels)-1 {
			f.below(under)
		}
	}
}

// margin is the room that vertical axes need on their left: for two lines of label, and for the marks.
func (p pen) margin(axes []axis) (w vg.Length) {
	for _, a := range axes {
		for _, t := range a.ticks {
			w = max(w, p.face.Width(t.lines[0]))
		}
	}
	return w + 2*lineHeight + 4*tickLength
}

func (p *panel) axis() axis {
	lo, hi, empty := 0.0, p.top, p.top == 0
	for _, l := range p.lines {
		for _, at := range l.points {
			lo, hi, empty = min(lo, at.y), max(hi, at.y), false
		}
	}
	if empty {
		return axis{max: 1}
	}
	most := 5
	if p.whole && hi > 0 {
		most = min(most, int(math.Ceil(hi))) // or there would be marks at fractions
	}
	return numberAxis(lo, hi, most)
}

// legend draws keys from the top of the area down, in as many rows as they need, and returns where it ends.
func (p pen) legend(area vg.Rectangle, keys []key) vg.Length {
	const space = 5
	x, y := area.Min.X, area.Max.Y
	for i, k := range keys {
		sample := vg.Length(22)
		if k.mark.Shape != nil {
			sample = 8
		}
		name := p.fitted(k.name, area.Size().X-sample-space)
		width := sample + space + p.face.Width(name)
		if i == 0 || x+width > area.Max.X {
			x, y = area.Min.X, y-lineHeight-2
		}
		if k.mark.Shape != nil {
			p.DrawGlyph(k.mark, vg.Point{X: x + sample/2, Y: y + fontSize/3})
		} else {
			p.StrokeLine2(k.style, x, y+fontSize/3, x+sample, y+fontSize/3)
		}
		p.text(x+sample+space, y, 0, name)
		x += width + 2*padding
	}
	return y
}

// bars draws charts beside each other, each with a bar for every name.
func (p pen) bars(charts []chart, strategies []string) {
	axes := make([]axis, len(charts))
	for i, c := range charts {
		axes[i] = numberAxis(slices.Min(c.values), slices.Max(c.values), 5)
	}
	margin, width := p.margin(axes), p.Size().X/vg.Length(len(charts))
	slot := (width - margin - padding) / vg.Length(len(strategies))
	names, height := p.names(strategies, slot)
	for i, c := range charts {
		left := p.Min.X + vg.Length(i)*width
		f := frame{pen: p, x: axis{max: 1}, y: axes[i], margin: margin, Rectangle: vg.Rectangle{
			Min: vg.Point{X: left + margin, Y: p.Min.Y + height}, Max: vg.Point{X: left + width - padding, Y: p.Max.Y},
		}}
		f.bars(c.values, slot)
		f.axes(c.label)
		for k, write := range names {
			write(f.Min.X+(vg.Length(k)+0.5)*slot, f.Min.Y-tickLength)
		}
	}
}

// names returns how to write the strategies' names below bars that are slot apart, and how high they are: in a line, in
// two, or turned, as it takes to keep them apart.
func (p pen) names(all []string, slot vg.Length) (write []func(x, y vg.Length), height vg.Length) {
	lines := 1
	for _, name := range all {
		if p.face.Width(name) > slot-padding/2 {
			lines = max(lines, 2)
		}
		if p.widest(broken(name)...) > slot-padding/2 {
			lines = 3
		}
	}
	for _, name := range all {
		switch lines {
		case 1:
			write = append(write, func(x, y vg.Length) { p.text(x, y-fontSize, 0.5, name) })
		case 2:
			write = append(write, func(x, y vg.Length) {
				for i, s := range broken(name) {
					p.text(x, y-fontSize-vg.Length(i)*lineHeight, 0.5, s)
				}
			})
		default:
			const angle, longest = math.Pi / 3, 150
			name := p.fitted(name, longest)
			height = max(height, p.face.Width(name)*vg.Length(math.Sin(angle)))
			write = append(write, func(x, y vg.Length) { p.turned(x+fontSize/3, y-fontSize/2, 1, angle, name) })
		}
	}
	if lines < 3 {
		height = vg.Length(lines) * lineHeight
	}
	return write, height + 2*tickLength
}

// broken splits a name after the "+" or "-" that leaves the shortest lines.
func broken(name string) []string {
	best := len(name)
	at := 0
	for i, r := range name {
		if longer := max(i+1, len(name)-i-1); strings.ContainsRune("+- ", r) && longer < best {
			best, at = longer, i+1
		}
	}
	if at == 0 {
		return []string{name}
	}
	return []string{name[:at], name[at:]}
}

// frame is the part of a figure in which values are drawn.
type frame struct {
	pen
	vg.Rectangle
	x, y   axis
	margin vg.Length // on its left
}

func (f *frame) at(v xy) vg.Point {
	size := f.Size()
	return vg.Point{
		X: f.Min.X + size.X*vg.Length((v.x-f.x.min)/(f.x.max-f.x.min)),
		Y: f.Min.Y + size.Y*vg.Length((v.y-f.y.min)/(f.y.max-f.y.min)),
	}
}

// grid draws faint lines at the marks of the axes.
func (f *frame) grid() {
	faint := draw.LineStyle{Color: color.Gray{Y: 0xE4}, Width: 0.6}
	for _, t := range f.x.ticks {
		x := f.at(xy{t.at, 0}).X
		f.StrokeLine2(faint, x, f.Min.Y, x, f.Max.Y)
	}
	for _, t := range f.y.ticks {
		y := f.at(xy{0, t.at}).Y
		f.StrokeLine2(faint, f.Min.X, y, f.Max.X, y)
	}
}

// axes draws both axes, and what explains the vertical one.
func (f *frame) axes(label ...string) {
	strong := draw.LineStyle{Color: color.Gray{Y: 0x40}, Width: 0.8}
	zero := f.at(xy{0, 0}).Y
	f.StrokeLine2(strong, f.Min.X, f.Min.Y, f.Min.X, f.Max.Y)
	f.StrokeLine2(strong, f.Min.X, zero, f.Max.X, zero)
	for _, t := range f.x.ticks {
		x := f.at(xy{t.at, 0}).X
		f.StrokeLine2(strong, x, f.Min.Y, x, f.Min.Y-tickLength)
	}
	for _, t := range f.y.ticks {
		y := f.at(xy{0, t.at}).Y
		f.StrokeLine2(strong, f.Min.X, y, f.Min.X-tickLength, y)
		f.text(f.Min.X-2*tickLength, y-fontSize/3, 1, t.lines[0])
	}
	for i, s := range label {
		x := f.Min.X - f.margin + fontSize + vg.Length(2-len(label)+i)*lineHeight
		f.turned(x, (f.Min.Y+f.Max.Y)/2, 0.5, math.Pi/2, s)
	}
}

// below explains the horizontal axis, whose marks have at most the given number of lines.
func (f *frame) below(under int) {
	y := f.Min.Y - tickLength - fontSize
	for _, t := range f.x.ticks {
		for i, s := range t.lines {
			f.text(f.at(xy{t.at, 0}).X, y-vg.Length(i)*lineHeight, 0.5, s)
		}
	}
	f.text((f.Min.X+f.Max.X)/2, y-vg.Length(under)*lineHeight-padding/2, 0.5, f.x.label)
}

func (f *frame) lines(all []line) {
	empty := true
	for _, l := range all {
		points := make([]vg.Point, len(l.points))
		for i, v := range l.points {
			points[i] = f.at(v)
		}
		f.StrokeLines(l.style, points)
		empty = empty && len(points) == 0
	}
	if empty {
		f.text((f.Min.X+f.Max.X)/2, (f.Min.Y+f.Max.Y)/2, 0.5, "no job started")
	}
}

// bars draws values as bars that are slot apart, each with its figure at its end.
func (f *frame) bars(values []float64, slot vg.Length) {
	figures := make([]string, len(values))
	for i, v := range values {
		figures[i] = fourDigits(v)
	}
	room, upright := vg.Length(lineHeight+3), f.widest(figures...) > slot-2
	if upright {
		room = f.widest(figures...) + 6
	}
	share := 1 - float64(room/f.Size().Y) // of the height, without the room for a figure
	f.y.max = max(f.y.max, f.y.min+(slices.Max(values)-f.y.min)/share)
	if lo := slices.Min(values); lo < 0 {
		f.y.min = min(f.y.min, f.y.max-(f.y.max-lo)/share)
	}
	for i, v := range values {
		x := f.Min.X + (vg.Length(i)+0.5)*slot
		zero, end, half := f.at(xy{0, 0}).Y, f.at(xy{0, v}).Y, 0.34*slot
		f.FillPolygon(strategyStyle(i, len(values)).Color,
			[]vg.Point{{X: x - half, Y: zero}, {X: x - half, Y: end}, {X: x + half, Y: end}, {X: x + half, Y: zero}})
		switch {
		case upright && v < 0:
			f.turned(x+fontSize/3, end-4, 1, math.Pi/2, figures[i])
		case upright:
			f.turned(x+fontSize/3, end+4, 0, math.Pi/2, figures[i])
		case v < 0:
			f.text(x, end-fontSize, 0.5, figures[i])
		default:
			f.text(x, end+4, 0.5, figures[i])
		}
	}
}

// fourDigits shows a value to four digits.
func fourDigits(v float64) string {
	if v == 0 {
		return "0"
	}
	return strconv.FormatFloat(v, 'f', max(0, 3-int(math.Floor(math.Log10(math.Abs(v))))), 64)
}
