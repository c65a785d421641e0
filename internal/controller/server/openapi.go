package server

import (
	"cmp"
	"encoding"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
)

type object = map[string]any

func (s *server) serveOpenAPI(w http.ResponseWriter, _ *http.Request, _ *query) error {
	write(w, http.StatusOK, contentJSON, s.openapi)
	return nil
}

// document returns the OpenAPI 3.0 document of all routes.
func document() []byte {
	d := &describer{schemas: object{}}
	paths := object{}
	all := routes()
	for i := range all {
		rt := &all[i]
		item, _ := paths[rt.path].(object)
		if item == nil {
			item = object{}
			paths[rt.path] = item
		}
		item[strings.ToLower(rt.method)] = d.operation(rt)
	}
	text, _ := json.Marshal(object{ // marshaling these types never fails
		"openapi": "3.0.3",
		"info": object{
			"title": "KubEnergy", "version": "v1",
			"description": "Energy, carbon and cost of workloads in a cluster. Every route requires a bearer token; " +
				"see docs/reference/api.md.",
		},
		"paths":    paths,
		"security": []any{object{"bearer": []any{}}, object{"header": []any{}}},
		"components": object{
			"schemas": d.schemas,
			"securitySchemes": object{
				"bearer": object{"type": "http", "scheme": "bearer"},
				"header": object{"type": "apiKey", "in": "header", "name": "X-Kubenergy-Token"},
			},
		},
	})
	return text
}

// describer generates schemas and collects those of named types.
type describer struct{ schemas object }

func (d *describer) operation(rt *route) object {
	parameters := []any{}
	for part := range strings.SplitSeq(rt.path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			parameters = append(parameters, object{
				"name": strings.TrimSuffix(name, "}"), "in": "path", "required": true,
				"schema": object{"type": "string"},
			})
		}
	}
	for i := range rt.query {
		parameters = append(parameters, rt.query[i].describe())
	}
	op := object{
		"operationId": operationID(rt), "summary": rt.about, "description": "Rights: " + rt.rights + ".",
		"responses": d.responses(rt),
	}
	if len(parameters) > 0 {
		op["parameters"] = parameters
	}
	if b := rt.body; b != nil {
		schema := object{"type": "string"}
		if b.schema != nil {
			schema = d.schema(reflect.TypeOf(b.schema))
		}
		op["requestBody"] = object{
			"required": true, "description": b.about, "content": object{b.media: object{"schema": schema}},
		}
	}
	return op
}

func (rt *route) success() int { return cmp.Or(rt.status, http.StatusOK) }

func (d *describer) responses(rt *route) object {
	success := object{"description": http.StatusText(rt.success())}
	if rt.answers != nil {
		content := object{contentJSON: object{"schema": d.schema(reflect.TypeOf(rt.answers))}}
		for _, format := range rt.formats {
			if format != formats[0] {
				kind, _, _ := strings.Cut(media[format], ";")
				content[kind] = object{"schema": object{"type": "string"}}
			}
		}
		success["content"] = content
	}
	failed := object{
		"description": "error",
		"content":     object{contentJSON: object{"schema": d.schema(reflect.TypeFor[api.Error]())}},
	}
	return object{strconv.Itoa(rt.success()): success, "default": failed}
}

func (p *parameter) describe() object {
	schema := object{"type": p.kind}
	if p.kind == kindTime {
		schema = object{"type": "string"}
	}
	if p.among != nil {
		schema["enum"] = p.among
	}
	if p.many {
		schema = object{"type": "array", "items": schema, "maxItems": maxValues}
	}
	about := p.about
	if p.otherwise != "" {
		about += " (default: " + p.otherwise + ")"
	}
	described := object{"name": p.name, "in": "query", "required": false, "description": about, "schema": schema}
	if p.many {
		described["style"], described["explode"] = "form", true
	}
	return described
}

// operationID returns a unique ID that is derived from the method and the path.
func operationID(rt *route) string {
	var id strings.Builder
	id.WriteString(strings.ToLower(rt.method))
	for _, part := range strings.FieldsFunc(rt.path, func(r rune) bool { return strings.ContainsRune("/{}.-", r) }) {
		id.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return id.String()
}

var (
	timeType      = reflect.TypeFor[time.Time]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
)

// schema returns the schema of a type as encoded by encoding/json. Types with their own JSON encoding get a generic
// schema.
func (d *describer) schema(t reflect.Type) object {
	if t.Kind() == reflect.Pointer {
		return d.schema(t.Elem())
	}
	switch {
	case t == timeType:
		return object{"type": "string", "format": "date-time"}
	case t.Implements(textMarshaler):
		return object{"type": "string"}
	case t == reflect.TypeFor[text](), t == reflect.TypeFor[length](), t == reflect.TypeFor[amount]():
		return object{"description": "a string or a number"}
	case t.Implements(jsonMarshaler), reflect.PointerTo(t).Implements(jsonMarshaler):
		return object{"type": "object", "description": "see docs/reference/api.md"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "format": "byte"}
		}
		return object{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.Struct:
		return d.structure(t)
	default:
		return object{}
	}
}

// structure adds the schema of a struct to the components, unless it exists, and returns a reference to it. Types
// of Kubernetes are not expanded.
func (d *describer) structure(t reflect.Type) object {
	if strings.HasPrefix(t.PkgPath(), "k8s.io/") {
		return object{"type": "object", "description": "Kubernetes object of type " + t.Name()}
	}
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	ref := object{"$ref": "#/components/schemas/" + name}
	if _, done := d.schemas[name]; done {
		return ref
	}
	properties, required := object{}, []string{}
	schema := object{"type": "object", "properties": properties}
	d.schemas[name] = schema
	for _, f := range reflect.VisibleFields(t) {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || tag == "-" || f.Anonymous && tag == "" {
			continue
		}
		tag = cmp.Or(tag, f.Name)
		properties[tag] = d.schema(f.Type)
		if !strings.Contains(options, "omit") {
			required = append(required, tag)
		}
	}
	if len(required) > 0 && name != "SubmissionFields" {
		slices.Sort(required)
		schema["required"] = required
	}
	return ref
}
