package dashboard

import (
	"fmt"
	"html/template"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/report"
)

// downloaded returns the page that a download is of, and which of its bands; nil: it is of the decisions.
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
		return p, nil, nil
	}
	p.overview()
	i := slices.IndexFunc(p.Bands, func(b band) bool { return b.ID == of })
	if i < 0 {
		return nil, nil, wrong("of is not grid, power, work or decisions")
	}
	return p, &p.Bands[i], nil
}

func (s *Server) csv(w http.ResponseWriter, r *http.Request) error {
	p, b, err := s.downloaded(w, r)
	if err != nil {
		return err
	}
	shown := &table{Header: columns(1, "nothing is known")}
	switch {
	case b != nil && b.Table != nil:
		shown = b.Table
	case len(p.Tables) > 0:
		shown = p.Tables[0]
	}
	var names []string
	for _, c := range shown.Header {
		names = append(names, c.Name)
	}
	t := report.Sheet(names...)
	for _, row := range shown.Rows {
		cells := make([]any, len(names))
		for i := range cells {
			text := strings.ReplaceAll(row.Cells[i], "\u00a0", " ")
			cells[i] = text
			if v, err := strconv.ParseFloat(text, 64); err == nil && shown.Numbered(i) {
				cells[i] = v // a text that begins with a minus would be taken for a formula
			}
		}
		t.Add(cells...)
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	return t.CSV(w)
}

// svg serves a band as a file of its own, with its axis, and its style inside.
func (s *Server) svg(w http.ResponseWriter, r *http.Request) error {
	p, b, err := s.downloaded(w, r)
	if err != nil {
		return err
	}
	style, err := assets.ReadFile("assets/style.css")
	if err != nil {
		return err
	}
	if b == nil || b.Plot == "" {
		return absent("picture of that")
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="1000" height="360" font-family="sans-serif">`+
		`<style>%s</style><rect width="1000" height="360" fill="var(--card)"/>`,
		template.HTMLEscapeString(string(style)))
	y := 0
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
