package dashboard

import (
	"fmt"
	"html/template"
	"net/http"
	"path"
	"strings"

	"github.com/kubenergy/kubenergy/report"
)

// downloaded returns the page that a download is of, and which of its bands, or nil.
func (s *Server) downloaded(w http.ResponseWriter, r *http.Request) (p *page, b *band) {
	of, v := r.URL.Query().Get("of"), Overview
	if of == string(Decisions) {
		v = Decisions
	}
	p, ok := s.start(w, r, v)
	if !ok {
		return nil, nil
	}
	p.whole = true
	w.Header().Set("Content-Disposition", "attachment; filename=kubenergy-"+path.Base(of)+"."+r.URL.Path[1:])
	if v == Decisions {
		p.decisions()
		return p, nil
	}
	p.overview()
	for i := range p.Bands {
		if p.Bands[i].ID == of {
			return p, &p.Bands[i]
		}
	}
	w.Header().Del("Content-Disposition")
	refuse(w, http.StatusBadRequest, "of is not grid, power, work or decisions")
	return nil, nil
}

func (s *Server) csv(w http.ResponseWriter, r *http.Request) {
	p, b := s.downloaded(w, r)
	if p == nil {
		return
	}
	var shown *table
	switch {
	case b != nil:
		shown = b.Table
	case len(p.Tables) > 0:
		shown = p.Tables[0]
	}
	if shown == nil {
		shown = &table{Header: columns(1, "nothing is known")}
	}
	var names []string
	for _, c := range shown.Header {
		names = append(names, c.Name)
	}
	t := report.Sheet(names...)
	for _, row := range shown.Rows {
		cells := make([]any, len(names))
		for i := range cells {
			cells[i] = strings.ReplaceAll(row.Cells[i], "\u00a0", " ")
		}
		t.Add(cells...)
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	_ = t.CSV(w)
}

// svg serves a band as a file of its own, with its axis, and its style inside.
func (s *Server) svg(w http.ResponseWriter, r *http.Request) {
	p, b := s.downloaded(w, r)
	if b == nil {
		return
	}
	style, err := assets.ReadFile("assets/style.css")
	if err != nil || b.Plot == "" {
		w.Header().Del("Content-Disposition")
		http.NotFound(w, r)
		return
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
	_, _ = w.Write([]byte("</svg>"))
}
