package server

import (
	"encoding/json"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit/reference"
)

var rewrite = flag.Bool("rewrite", false, "regenerate docs/reference/api.md")

// TestOpenAPI verifies the structure that OpenAPI 3.0 requires and that exactly all routes are described.
func TestOpenAPI(t *testing.T) {
	h := newWorld(t).handler()
	first := ask(t, h, "GET", "/openapi/v3.json", stranger, "")
	second := ask(t, h, "GET", "/api/v1/openapi.json", stranger, "")
	if first.Code != 200 || first.Body.String() != second.Body.String() ||
		first.Header().Get("Content-Type") != contentJSON {
		t.Fatalf("%d, %d", first.Code, second.Code)
	}
	var doc struct {
		OpenAPI    string
		Info       struct{ Title, Version string }
		Paths      map[string]map[string]operationDoc
		Components struct {
			Schemas         map[string]any
			SecuritySchemes map[string]any
		}
		Security []map[string][]string
	}
	if err := json.Unmarshal(first.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.0.") || doc.Info.Title == "" || doc.Info.Version == "" ||
		len(doc.Security) != 2 {
		t.Errorf("%+v", doc.Info)
	}
	for _, scheme := range doc.Security {
		for name := range scheme {
			if doc.Components.SecuritySchemes[name] == nil {
				t.Errorf("security scheme %s is not defined", name)
			}
		}
	}
	for _, ref := range regexp.MustCompile(`"\$ref":"#/components/schemas/([^"]*)"`).FindAllStringSubmatch(
		first.Body.String(), -1) {
		if doc.Components.Schemas[ref[1]] == nil {
			t.Errorf("schema %s is not defined", ref[1])
		}
	}
	ids := map[string]bool{}
	operations := 0
	for path, item := range doc.Paths {
		for method, op := range item {
			operations++
			op.check(t, method+" "+path, path)
			if ids[op.OperationID] {
				t.Errorf("operation ID %s is not unique", op.OperationID)
			}
			ids[op.OperationID] = true
		}
	}
	if all := routes(); operations != len(all) {
		t.Errorf("%d operations, want one for each of %d routes", operations, len(all))
	}
	if schema, ok := doc.Components.Schemas["NodePower"].(map[string]any); !ok ||
		!strings.Contains(jsonOf(t, schema), `"watts":{"type":"number"}`) {
		t.Errorf("NodePower: %v", schema)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

type operationDoc struct {
	OperationID, Summary, Description string
	Parameters                        []struct {
		Name, In, Description string
		Required              bool
		Schema                map[string]any
	}
	RequestBody *struct {
		Content map[string]struct{ Schema map[string]any }
	}
	Responses map[string]struct {
		Description string
		Content     map[string]struct{ Schema map[string]any }
	}
}

func (op *operationDoc) check(t *testing.T, what, path string) {
	t.Helper()
	if op.OperationID == "" || op.Summary == "" || op.Responses["default"].Description == "" || len(op.Responses) != 2 {
		t.Errorf("%s: %+v", what, op)
	}
	seen := map[string]bool{}
	for _, p := range op.Parameters {
		if seen[p.In+p.Name] || p.Schema["type"] == nil || p.In != "query" && p.In != "path" ||
			p.Required != (p.In == "path") {
			t.Errorf("%s: parameter %+v", what, p)
		}
		seen[p.In+p.Name] = true
	}
	for _, name := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
		if !seen["path"+name[1]] {
			t.Errorf("%s: path parameter %s is not described", what, name[1])
		}
	}
	if strings.HasPrefix(what, "post") && (op.RequestBody == nil || len(op.RequestBody.Content) != 1) {
		t.Errorf("%s: body %+v", what, op.RequestBody)
	}
}

// TestRoutes verifies the consistency of the route table.
func TestRoutes(t *testing.T) {
	seen := map[string]bool{}
	for _, rt := range routes() {
		name := rt.method + " " + rt.path
		if seen[name] || rt.about == "" || rt.rights == "" || (rt.serve == nil) != rt.own || !rt.own && rt.may == nil {
			t.Errorf("%s", name)
		}
		seen[name] = true
		if (rt.method == "POST") != (rt.body != nil) {
			t.Errorf("%s: body %v", name, rt.body)
		}
		for i, p := range rt.query {
			if p.about == "" || p.example == "" || p.kind == "" ||
				slices.ContainsFunc(rt.query[:i], func(o parameter) bool { return o.name == p.name }) {
				t.Errorf("%s: parameter %+v", name, p)
			}
		}
		if strings.Contains(rt.path, "{namespace}") != strings.Contains(rt.rights, "in the namespace") {
			if rt.path != "/ingest" {
				t.Errorf("%s: unexpected permissions %q", name, rt.rights)
			}
		}
	}
}

// TestReference compares the reference in docs/reference/api.md with the route table.
func TestReference(t *testing.T) {
	reference.Hold(t, "docs/reference/api.md", "./internal/controller/server -run TestReference", describeRoutes(), *rewrite)
}

// describeRoutes describes the routes and their parameters in Markdown. Parameters of several routes are described
// once.
func describeRoutes() string {
	var b strings.Builder
	all, users, listed := routes(), map[string]int{}, map[string]bool{}
	b.WriteString("\n")
	for i := range all {
		rt := &all[i]
		fmt.Fprintf(&b, "* `%s %s` (%s): %s\n", rt.method, rt.path, rt.rights, rt.about)
		for j := range rt.query {
			users[describeParameter(&rt.query[j])]++
		}
	}
	b.WriteString("\n### Parameters of several routes\n\n")
	for i := range all {
		for j := range all[i].query {
			if line := describeParameter(&all[i].query[j]); users[line] > 1 && !listed[line] {
				b.WriteString(line)
				listed[line] = true
			}
		}
	}
	for i := range all {
		rt := &all[i]
		if len(rt.query) == 0 && rt.body == nil {
			continue
		}
		b.WriteString("\n#### " + rt.method + " " + rt.path + "\n\n")
		if rt.body != nil {
			b.WriteString("Body: `" + rt.body.media + "`, " + rt.body.about + ". Success: " +
				strconv.Itoa(rt.success()) + ".\n")
		}
		var names []string
		for j := range rt.query {
			if line := describeParameter(&rt.query[j]); listed[line] {
				names = append(names, "`"+rt.query[j].name+"`")
			} else {
				b.WriteString(line)
			}
		}
		if len(names) > 0 {
			b.WriteString("* " + strings.Join(names, ", ") + "\n")
		}
	}
	b.WriteString("\n")
	return b.String()
}

// describeParameter describes a parameter in an item of a list.
func describeParameter(p *parameter) string {
	line := "* `" + p.name + "`: " + p.about
	if p.among != nil {
		line += ": " + strings.Join(p.among, ", ")
	}
	if p.many {
		line += "; repeatable"
	}
	if p.otherwise != "" {
		line += "; default: " + p.otherwise
	}
	return line + "\n"
}
