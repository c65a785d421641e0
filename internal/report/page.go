package report

import (
	"bytes"
	"html/template"
	"io"
	"strings"

	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// page is an HTML page with tables, figures and notes.
type page struct {
	Title            string
	Tables           []*shown
	Units            bool // show units below the names of columns
	Figures          []pageFigure
	Notes            []string
	Command, Program string // that wrote the page; empty to omit them
}

type pageFigure struct {
	Caption string
	Drawing template.HTML
}

// inPage returns an SVG file as an element of an HTML page, where it does not need namespaces.
func inPage(svg []byte) template.HTML {
	_, drawing, _ := strings.Cut(string(svg), "<svg")
	size, drawing, _ := strings.Cut(drawing, "xmlns=")
	_, drawing, _ = strings.Cut(drawing, ">")
	return template.HTML("<svg" + size + ">" + drawing) //nolint:gosec // all texts of a figure are escaped
}

// write writes the page as report.html into dir. It also writes the figures and the given additional files.
func (p *page) write(dir string, figures []namedFigure, tables []*Table, more map[string]func(io.Writer) error,
) (paths []string, err error) {
	files, err := rendered(more)
	if err != nil {
		return nil, err
	}
	drawAll(figures, files)
	p.Figures = sliceutil.Map(figures, func(f namedFigure) pageFigure {
		return pageFigure{f.caption, inPage(files[f.name+".svg"])}
	})
	p.Tables = sliceutil.Map(tables, func(t *Table) *shown { return t.shown(true) })
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, p); err != nil {
		return nil, err
	}
	files["report.html"] = b.Bytes()
	return replaceAll(dir, files)
}

// pageTemplate renders a page that loads no resources and runs no scripts.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"name":  func(header string) string { name, _, _ := strings.Cut(header, "\n"); return name },
	"whole": func(header string) string { return strings.ReplaceAll(header, "-\n", "") }, // there is room for it
	"unit":  func(header string) string { _, unit, _ := strings.Cut(header, "\n"); return unit },
}).Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{{.Title}}</title>
<style>
body {
  font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; width: fit-content; max-width: 100%; padding: 0 1rem;
  box-sizing: border-box; color: #1a1a1a; background: #fff;
}
h1, ul, p, figure { max-width: 75rem; } h1 { font-size: 1.35rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.scroll { overflow-x: auto; } code { white-space: pre-wrap; }
table { border-collapse: collapse; } caption { text-align: left; font-weight: 600; padding: .4rem 0; }
th, td {
  padding: .3rem .7rem; border-bottom: 1px solid #ccc; text-align: right; vertical-align: bottom;
  white-space: pre-line; font-variant-numeric: tabular-nums;
}
th[scope=row], .name { text-align: left; } th.name { white-space: nowrap; }
tfoot td, tfoot th { border-top: 2px solid #444; font-weight: 600; }
small { font-weight: 400; color: #444; display: block; }
figure { margin: 2rem 0; overflow-x: auto; }
figure svg { max-width: 100%; height: auto; background: #fff; }
@media print { body { font-size: 9px; margin: 0; } th, td { padding: .2rem .3rem; } .scroll { overflow-x: visible; } }
@media (prefers-color-scheme: dark) {
  body { color: #e8e8e8; background: #161616; } small { color: #bbb; } th, td { border-color: #444; }
}
</style>
</head>
<body>
<h1>{{.Title}}</h1>
{{range .Tables}}<div class="scroll"><table>
{{if .Title}}<caption>{{.Title}}</caption>
{{end}}{{$words := .Words -}}
<thead><tr>{{range $i, $h := .Header}}{{if lt $i $words}}<th scope="col" class="name">{{whole $h}}</th>
{{- else if $.Units}}<th scope="col">{{name $h}}<small>{{unit $h}}</small></th>
{{- else}}<th scope="col">{{whole $h}}</th>{{end}}{{end}}</tr></thead>
<tbody>
{{range .Rows}}<tr>{{range $i, $c := .}}
{{- if lt $i $words}}<th scope="row">{{$c}}</th>{{else}}<td>{{$c}}</td>{{end}}{{end}}</tr>
{{end}}</tbody>
{{if .Total}}<tfoot><tr>{{range $i, $c := .Total}}
{{- if lt $i $words}}<th scope="row">{{$c}}</th>{{else}}<td>{{$c}}</td>{{end}}{{end}}</tr></tfoot>{{end}}
</table></div>
{{end}}
{{- range .Figures}}<figure>{{.Drawing}}<figcaption>{{.Caption}}</figcaption></figure>
{{end}}
{{- ""}}<h2>Notes</h2>
<ul>
{{range .Notes}}<li>{{.}}</li>
{{end}}</ul>
{{- if .Command}}
<p>Made by <code>{{.Command}}</code>, KubEnergy {{.Program}}.</p>{{end}}
</body>
</html>
`))
