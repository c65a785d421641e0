package report

import (
	"html/template"
	"io"
	"math"
	"strings"
)

// bar is one horizontal bar of the figure.
type bar struct {
	Name  string
	Text  string
	Y     float64
	Width float64
}

// page is what the template shows.
type page struct {
	Title   string
	Table   *shown
	Bars    []bar
	Height  float64
	Notes   []string
	Savings *Comparison
	PerJob  []pageJob
	Left    int
}

type pageJob struct {
	Job, Strategy, Nodes, Instead, Held, Energy, Emissions, Cost string
}

// What is shown of a long report; CSV and JSON have everything.
const (
	mostBars = 30
	mostJobs = 500
	barStep  = 22.0
	barRoom  = 420.0
)

// HTML writes a page that loads nothing.
func (s *Statement) HTML(w io.Writer) error {
	p := page{Title: s.title(), Table: s.table().shown(true), Notes: s.Notes, Savings: s.Savings}
	if len(s.GroupBy) == 0 {
		p.Table.Total = nil
	}
	most := 0.0
	for i := range s.Rows {
		most = max(most, s.Rows[i].EnergyKWh)
	}
	if len(s.GroupBy) > 0 && most > 0 {
		for i := range s.Rows[:min(len(s.Rows), mostBars)] {
			row := &s.Rows[i]
			p.Bars = append(p.Bars, bar{
				Name: strings.Join(p.Table.Rows[i][:p.Table.Words], " · "),
				Text: significant(row.EnergyKWh) + " kWh, " + row.Quality.String(), Y: float64(i) * barStep,
				Width: math.Max(0, row.EnergyKWh/most*barRoom),
			})
		}
		p.Height = float64(len(p.Bars))*barStep + 4
		p.Left = len(s.Rows) - len(p.Bars)
	}
	p.addJobs(s.Savings)
	return pageTemplate.Execute(w, &p)
}

func (p *page) addJobs(c *Comparison) {
	if c == nil {
		return
	}
	for i := range c.PerJob[:min(len(c.PerJob), mostJobs)] {
		j := &c.PerJob[i]
		row := pageJob{
			Job: j.Namespace + "/" + j.Owner, Strategy: j.Strategy, Nodes: names(j.Nodes), Instead: names(j.Instead),
			Energy: j.Energy.String(),
		}
		if j.Held > 0 {
			row.Held = span(j.Held)
		}
		if j.Emissions != nil {
			row.Emissions = j.Emissions.String() + " (" + j.Signal + ")"
		}
		if j.Cost != nil {
			row.Cost = j.Cost.String() + " " + j.Currency
		}
		p.PerJob = append(p.PerJob, row)
	}
}

func names(all []string) string {
	const some = 3
	if len(all) > some {
		return strings.Join(all[:some], ", ") + ", …"
	}
	return strings.Join(all, ", ")
}

// pageHead begins every page. A page loads nothing from anywhere and runs no script.
const pageHead = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{{.Title}}</title>
<style>
body {
  font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem;
  color: #1a1a1a; background: #fff;
}
h1 { font-size: 1.35rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
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
.bars text { font: 12px system-ui, sans-serif; fill: #1a1a1a; }
@media (prefers-color-scheme: dark) {
  body { color: #e8e8e8; background: #161616; } small { color: #bbb; } th, td { border-color: #444; }
}
</style>
</head>
<body>
<h1>{{.Title}}</h1>
`

var pageTemplate = template.Must(template.New("statement").Funcs(template.FuncMap{
	"cells": func(row []string, words int) map[string][]string {
		return map[string][]string{"Names": row[:words], "Figures": row[words:]}
	},
	"plus": func(a, b float64) float64 { return a + b },
	"name": func(header string) string { name, _, _ := strings.Cut(header, "\n"); return name },
	"unit": func(header string) string { _, unit, _ := strings.Cut(header, "\n"); return unit },
}).Parse(pageHead + `{{if .Bars}}<figure><svg class="bars" role="img" viewBox="0 0 1000 {{.Height}}" width="100%"
  aria-label="Energy in kWh as bars; the table has the same numbers">
{{range .Bars}}<text x="270" y="{{plus .Y 15}}" text-anchor="end">{{.Name}}</text>
{{- ""}}<rect x="280" y="{{plus .Y 3}}" width="{{.Width}}" height="16" fill="#2a6fb0"></rect>
{{- ""}}<text x="{{plus 288 .Width}}" y="{{plus .Y 15}}">{{.Text}}</text>
{{end}}</svg>{{if gt .Left 0}}<figcaption>{{.Left}} more rows are in the table.</figcaption>{{end}}</figure>{{end}}
<div class="scroll"><table>
<caption>Energy, emissions and cost{{if .Savings}}; saved against {{.Savings.Baseline}}, estimated{{end}}</caption>
{{$words := .Table.Words -}}
<thead><tr>{{range $i, $h := .Table.Header}}{{if lt $i $words}}<th scope="col" class="name">{{$h}}</th>
{{- else}}<th scope="col">{{name $h}}<small>{{unit $h}}</small></th>{{end}}{{end}}</tr></thead>
<tbody>
{{range .Table.Rows}}{{template "row" (cells . $words)}}
{{end}}</tbody>
{{if .Table.Total}}<tfoot>{{template "row" (cells .Table.Total $words)}}</tfoot>{{end}}
</table></div>
{{if .PerJob}}<h2>Jobs</h2>
<div class="scroll"><table>
<caption>Saved by each job against {{.Savings.Baseline}}, estimated; 95 % interval in brackets;
{{len .PerJob}} of {{.Savings.Jobs}} jobs</caption>
<thead><tr><th scope="col" class="name">job</th><th scope="col" class="name">strategy</th>
<th scope="col" class="name">ran on</th><th scope="col" class="name">baseline</th><th scope="col">held</th>
<th scope="col">saved<small>kWh</small></th><th scope="col">saved<small>kgCO2e</small></th>
<th scope="col">saved<small>money</small></th></tr></thead>
<tbody>
{{range .PerJob}}<tr><th scope="row">{{.Job}}</th><td class="name">{{.Strategy}}</td><td class="name">{{.Nodes}}</td>
{{- ""}}<td class="name">{{.Instead}}</td><td>{{.Held}}</td><td>{{.Energy}}</td><td>{{.Emissions}}</td>
{{- ""}}<td>{{.Cost}}</td></tr>
{{end}}</tbody>
</table></div>{{end}}
<h2>Notes</h2>
<ul>
{{range .Notes}}<li>{{.}}</li>
{{end}}{{if .Savings}}<li>{{.Savings.Method}}</li>{{end}}
</ul>
</body>
</html>
{{define "row"}}<tr>{{range .Names}}<th scope="row">{{.}}</th>{{end}}
{{- range .Figures}}<td>{{.}}</td>{{end}}</tr>{{end}}`))
