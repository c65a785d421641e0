package grafana

import (
	"bytes"
	"encoding/json"
)

// object is a JSON object of Grafana.
type object map[string]any

// A dashboard is defined by a table in dashboards.go.
type dashboard struct {
	name, title, text string
	variables         []object
	rows              []row
}

type row struct {
	title  string
	panels []panel
}

// A panel displays queries with a common unit.
type panel struct {
	kind    string
	width   int // in columns, at most 24
	title   string
	unit    string
	text    string // description
	quality string // source of the values
	quiet   string // reason why it may be empty on a healthy cluster, or "" if it never is
	stacked bool
	bad     float64 // threshold from which values are red; 0 disables it
	queries []query
}

type query struct{ expr, legend string }

// stat, bars and graph create panels. Each query is followed by its legend.
func stat(width int, title, unit, quality, text string, queries ...string) panel {
	p := panel{kind: "stat", width: width, title: title, unit: unit, quality: quality, text: text}
	for i := 0; i < len(queries); i += 2 {
		p.queries = append(p.queries, query{queries[i], queries[i+1]})
	}
	return p
}

func bars(width int, title, unit, quality, text string, queries ...string) panel {
	p := stat(width, title, unit, quality, text, queries...)
	p.kind = "bargauge"
	return p
}

func graph(width int, title, unit, quality, text string, queries ...string) panel {
	p := stat(width, title, unit, quality, text, queries...)
	p.kind = "timeseries"
	return p
}

func (p panel) unless(why string) panel { p.quiet = why; return p }

func (p panel) stack() panel { p.stacked = true; return p }

func (p panel) redFrom(bad float64) panel { p.bad = bad; return p }

// Sources of the values of a panel.
const (
	counted   = "Counted by the program."
	estimated = "Estimated by a model without a meter."
	metered   = "Reported by agents and measured, derived or estimated according to the label quality."
	wall      = "Measured by a meter on the network or derived from its power."
	booked    = "Derived from meters if the node has one, otherwise estimated."
	provided  = "Measured, derived or estimated according to the source of the GridZone."
)

const schemaVersion = 42

// source refers to the data source variable, so dashboards do not depend on the UID of a data source.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// json returns the dashboard in the format that Grafana imports.
func (d *dashboard) json() ([]byte, error) {
	panels, id, y := []object{}, 0, 0
	next := func() int { id++; return id }
	for _, r := range d.rows {
		panels = append(panels, object{
			"id": next(), "type": "row", "title": r.title, "collapsed": false, "panels": []object{},
			"gridPos": position(0, y, columns, 1),
		})
		x, high := 0, 0
		y++
		for i := range r.panels {
			p := &r.panels[i]
			if x+p.width > columns {
				x, y, high = 0, y+high, 0
			}
			one := p.object(next())
			one["gridPos"] = position(x, y, p.width, p.height())
			panels, x, high = append(panels, one), x+p.width, max(high, p.height())
		}
		y += high
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err := encoder.Encode(object{
		"uid": "kubenergy-" + d.name, "title": "KubEnergy / " + d.title, "description": d.text,
		"tags": []string{"kubenergy"}, "schemaVersion": schemaVersion, "editable": true, "graphTooltip": 1,
		"refresh": "1m", "time": object{"from": "now-24h", "to": "now"}, "timezone": "browser",
		"annotations": object{"list": []object{}}, "templating": object{"list": append([]object{{
			"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1,
		}}, d.variables...)},
		"links": []object{{
			"title": "KubEnergy", "type": "dashboards", "tags": []string{"kubenergy"}, "asDropdown": true, "icon": "",
			"includeVars": true, "keepTime": true, "targetBlank": false, "tooltip": "KubEnergy dashboards", "url": "",
		}},
		"panels": panels,
	})
	return b.Bytes(), err
}

const columns = 24

func position(x, y, w, h int) object { return object{"x": x, "y": y, "w": w, "h": h} }

func (p *panel) height() int {
	if p.kind == "stat" {
		return 4
	}
	return 8
}

func (p *panel) description() string {
	text := p.text + " " + p.quality
	if p.quiet != "" {
		text += " May be empty: " + p.quiet + "."
	}
	return text
}

func (p *panel) object(id int) object {
	targets := []object{}
	for i, q := range p.queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "expr": q.expr, "legendFormat": q.legend,
			"editorMode": "code", "instant": p.instant(), "range": !p.instant(),
		})
	}
	defaults := object{"unit": p.unit, "custom": object{}}
	if p.kind == "timeseries" {
		defaults["custom"] = object{"fillOpacity": 10, "showPoints": "never"}
		if p.stacked {
			defaults["custom"] = object{
				"fillOpacity": 60, "showPoints": "never", "stacking": object{"mode": "normal", "group": "A"},
			}
		}
	}
	if p.bad > 0 {
		defaults["thresholds"] = object{"mode": "absolute", "steps": []object{
			{"value": nil, "color": "green"}, {"value": p.bad, "color": "red"},
		}}
	}
	return object{
		"id": id, "type": p.kind, "title": p.title, "description": p.description(), "datasource": source,
		"targets": targets, "fieldConfig": object{"defaults": defaults, "overrides": []object{}},
		"options": p.options(),
	}
}

// instant reports whether a panel displays values at a single point in time.
func (p *panel) instant() bool { return p.kind != "timeseries" }

func (p *panel) options() object {
	reduce := object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}
	switch p.kind {
	case "stat":
		return object{"reduceOptions": reduce, "textMode": "auto", "colorMode": "value", "graphMode": "none"}
	case "bargauge":
		return object{"reduceOptions": reduce, "orientation": "horizontal", "displayMode": "basic"}
	}
	return object{
		"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true},
		"tooltip": object{"mode": "multi", "sort": "desc"},
	}
}
