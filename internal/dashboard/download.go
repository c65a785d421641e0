package dashboard

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// downloaded returns the page and the band of a download. Decisions are a band without a figure.
func (s *Server) downloaded(w http.ResponseWriter, r *http.Request) (p *page, b *band, err error) {
	of, v := r.URL.Query().Get("of"), Overview
	if of == string(Decisions) {
		v = Decisions
	}
	if p, err = s.start(w, r, v); err != nil {
		return nil, nil, err
	}
	p.whole = true
	w.Header().Set("Content-Disposition", "attachment; filename=kubenergy-"+path.Base(of)+"."+r.URL.Path[1:])
	if v == Decisions {
		p.decisions()
		return p, &band{Table: p.Tables[0]}, nil
	}
	p.overview()
	i := slices.IndexFunc(p.Bands, func(b band) bool { return b.ID == of })
	if i < 0 {
		return nil, nil, wrong("of: want grid, power, work or decisions")
	}
	return p, &p.Bands[i], nil
}

func (s *Server) csv(w http.ResponseWriter, r *http.Request) error {
	_, b, err := s.downloaded(w, r)
	if err != nil {
		return err
	}
	shown := cmp.Or(b.Table, &table{Header: columns(1, "no data")})
	names := sliceutil.Map(shown.Header, func(c column) string { return c.Name })
	t := report.Sheet(names...)
	for _, row := range shown.Rows {
		cells := make([]any, len(names))
		for i := range cells {
			text := strings.ReplaceAll(row.Cells[i], "\u00a0", " ")
			cells[i] = text
			if v, err := strconv.ParseFloat(text, 64); err == nil && shown.Numbered(i) {
				cells[i] = v // a text that starts with a minus would look like a formula
			}
		}
		t.Add(cells...)
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	return t.CSV(w)
}

// legend returns the title and the keys of a band as SVG, and their height.
func (b *band) legend(m *Model) (drawn string, height int) {
	var text strings.Builder
	const line = 20
	svgText(&text, fmt.Sprintf("%s of %s, %s to %s UTC", b.Name, m.Title, stamp(m.From), stamp(m.To)),
		`class="title" x="4" y="16"`)
	text.WriteString(`<g class="keys">`)
	x, y := 4, 2*line
	notes := sliceutil.Map(b.Notes, func(n note) keyed { return keyed{Name: n.Text} })
	for _, k := range slices.Concat(b.Keys, notes) {
		width := 30 + 7*len([]rune(k.Name))
		if x+width > 1000 && x > 4 {
			x, y = 4, y+line
		}
		classes := []string{k.Class}
		if k.Class == "k-guessed" {
			classes = []string{"dynamic", "guessed"}
		}
		for _, class := range classes {
			fmt.Fprintf(&text, `<rect class="%s" x="%d" y="%d" width="%d" height="10"/>`, class, x, y-10,
				map[bool]int{true: 12}[k.Class != ""])
		}
		svgText(&text, k.Name, `x="%d" y="%d"`, x+18, y)
		x += width
	}
	return text.String() + "</g>", y + line
}

// svg serves a band as a self-contained SVG file with title, legend, axis and styles.
func (s *Server) svg(w http.ResponseWriter, r *http.Request) error {
	p, b, err := s.downloaded(w, r)
	if err != nil {
		return err
	}
	style, _ := assets.ReadFile("assets/style.css") // it is embedded
	if b.Plot == "" {
		return absent("such figure")
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	legend, y := b.legend(p.Model)
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="1000" height="%d" font-family="sans-serif" `+
		`font-size="12"><style>%s text { fill: var(--ink) }</style>`+
		`<rect width="1000" height="100%%" fill="var(--card)"/>%s`, y+360, html.EscapeString(string(style)), legend)
	for _, part := range []struct {
		drawn  template.HTML
		height int
	}{{b.Plot, 220}, {b.Second, 80}, {p.Axis, 30}} {
		if part.drawn != "" {
			fmt.Fprintf(w, `<svg y="%d" width="1000" height="%d">%s</svg>`, y, part.height, part.drawn)
			y += part.height + 10
		}
	}
	_, err = w.Write([]byte("</svg>"))
	return err
}
