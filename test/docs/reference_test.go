package docs

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/cli"
	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/karmada"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/reference"
)

// help returns a function that returns the help of a command.
func help(t *testing.T) func(words ...string) string {
	return func(words ...string) string {
		t.Helper()
		var b bytes.Buffer
		if code := cli.Run(t.Context(), append(slices.Clone(words[1:]), "--help"), nil, &b, &b); code != 0 {
			t.Fatalf("%s --help: exit code %d\n%s", strings.Join(words, " "), code, b.String())
		}
		return b.String()
	}
}

// TestCommands compares docs/reference/cli.md with the help of the command line. The part about kubenergy-lab is
// tested in test/surface, because it imports Kubernetes.
func TestCommands(t *testing.T) {
	reference.Hold(t, "docs/reference/cli.md", "./test/docs -run TestCommands",
		reference.Commands(help(t), "kubenergy"), *rewrite)
}

// TestKarmadaFlags generates the table in docs/reference/karmada.md from the flags of kubenergy-karmada.
func TestKarmadaFlags(t *testing.T) {
	rows, set := newTable("flag", "", "default", "description"), flag.NewFlagSet("", flag.ContinueOnError)
	new(karmada.Flags).Add(set)
	set.VisitAll(func(f *flag.Flag) {
		value, about := flag.UnquoteUsage(f)
		rows.add(code("--"+f.Name), value, code(f.DefValue), about)
	})
	reference.Hold(t, "docs/reference/karmada.md", "./test/docs -run TestKarmadaFlags", rows.b.String(), *rewrite)
}

// A table is a Markdown table.
type table struct{ b strings.Builder }

func newTable(head ...string) *table {
	t := &table{}
	t.add(head...)
	t.add(slices.Repeat([]string{"---"}, len(head))...)
	return t
}

func (t *table) add(cells ...string) {
	for _, cell := range cells {
		cell = strings.ReplaceAll(strings.Join(strings.Fields(cell), " "), "|", `\|`)
		t.b.WriteString("| " + cell + " ")
	}
	t.b.WriteString("|\n")
}

// code formats a non-empty string as inline code.
func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// theirs matches the keys that KubEnergy reads or writes, including those of other systems. inside matches internal
// keys that are not documented.
var (
	theirs = regexp.MustCompile(`^(kubenergy\.io|compute-gardener-scheduler\.kubernetes\.io|energy\.thesis\.io)/`)
	inside = regexp.MustCompile(`^kubenergy\.io/(KubEnergy|v1alpha1|lab-job|lab-trial)$`)
)

// TestAnnotations generates docs/reference/annotations.md from the constants of keys, their comments and the tables
// of aliases.
func TestAnnotations(t *testing.T) {
	c := reference.ReadCode(t)
	var b strings.Builder
	for _, folder := range slices.Sorted(maps.Keys(c.Files)) {
		for _, file := range c.Files[folder] {
			for _, d := range file.Decls {
				if group, ok := d.(*ast.GenDecl); ok && group.Tok == token.CONST && group.Doc != nil {
					b.WriteString(describeKeys(t, c, folder, group))
				}
			}
		}
	}
	aliases := map[string]string{}
	c.Aliases(func(our, their string) { aliases[their] = our })
	var rows strings.Builder
	for _, their := range slices.Sorted(maps.Keys(aliases)) {
		fmt.Fprintf(&rows, "* `%s`: `%s`\n", their, aliases[their])
	}
	b.WriteString("\n## Keys of other systems that stand for ours\n\nThe KubEnergy key takes precedence over its " +
		"alias. Aliases accept the same values, except that `estimated-runtime-hours` is a number of hours.\n\n" +
		rows.String())
	c.All(func(text string) {
		if theirs.MatchString(text) && reference.IsKey(text) && !inside.MatchString(text) &&
			!strings.Contains(b.String(), "`"+text) {
			t.Errorf("key %s is not documented, add a comment of the form \"value: effect\" to its constant", text)
		}
	})
	reference.Hold(t, "docs/reference/annotations.md", "./test/docs -run TestAnnotations", b.String(), *rewrite)
}

// describeKeys generates a section from a group of constants that contains a key. The heading is the first sentence
// of the group's comment. The comment of a key consists of its value and, after a colon, its effect.
func describeKeys(t *testing.T, c *reference.Code, folder string, group *ast.GenDecl) string {
	t.Helper()
	var rows strings.Builder
	relevant := false
	for _, s := range group.Specs {
		spec := s.(*ast.ValueSpec)
		about := strings.Join(strings.Fields(cmp.Or(spec.Doc, spec.Comment).Text()), " ")
		if len(spec.Values) == 0 || about == "" {
			continue
		}
		key, _ := c.Text(folder, spec.Values[0])
		value, effect, ok := strings.Cut(about, ": ")
		if !strings.Contains(key, "/") || !ok {
			continue
		}
		relevant = relevant || reference.IsKey(key)
		if strings.HasSuffix(key, "-") || strings.HasSuffix(key, ".") {
			key += "…"
		}
		fmt.Fprintf(&rows, "* `%s` (%s): %s\n", key, value, effect)
	}
	if !relevant {
		return ""
	}
	heading, more, _ := strings.Cut(strings.Join(strings.Fields(group.Doc.Text()), " "), ". ")
	return "\n## " + strings.TrimSuffix(heading, ".") + "\n\n" + strings.TrimLeft(more+"\n\n", "\n") + rows.String()
}

// TestReasons generates docs/reference/reasons.md from the constants of decision reasons and their comments.
func TestReasons(t *testing.T) {
	var rows strings.Builder
	kind := sched.ReasonKind(0)
	for _, file := range reference.ReadCode(t).Files[filepath.Join(kit.Root, "internal/sched")] {
		ast.Inspect(file, func(n ast.Node) bool {
			group, ok := n.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				return true
			}
			first, _ := group.Specs[0].(*ast.ValueSpec).Type.(*ast.Ident)
			if first == nil || first.Name != "ReasonKind" {
				return false
			}
			for _, spec := range group.Specs {
				about := strings.TrimSpace(spec.(*ast.ValueSpec).Comment.Text())
				if about == "" {
					t.Errorf("reason %s has no trailing comment in package sched", kind)
				}
				fmt.Fprintf(&rows, "* `%s`: %s\n", kind, about)
				kind++
			}
			return false
		})
	}
	if name := kind.String(); !strings.HasPrefix(name, "Reason(") {
		t.Errorf("reason %s has no constant in package sched", name)
	}
	reference.Hold(t, "docs/reference/reasons.md", "./test/docs -run TestReasons", rows.String(), *rewrite)
}

// A value is a line of values.yaml that sets a value, with its comments.
type value struct{ key, otherwise, about string }

var (
	valueLine = regexp.MustCompile(`^( *)([A-Za-z]\w*):(?: +([^#\s].*?))?(?: +# (.*))?$`)
	proseLine = regexp.MustCompile(`^ *# (.*)$`)
)

// readValues parses values.yaml line by line to obtain the comments above and behind each value. The comment before
// the first empty line describes the file.
func readValues(t *testing.T, text string) (all []value) {
	t.Helper()
	var path []string
	var above []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := proseLine.FindStringSubmatch(line); m != nil {
			above = append(above, m[1])
			continue
		}
		m := valueLine.FindStringSubmatch(line)
		switch {
		case line == "":
		case m == nil:
			t.Fatalf("values.yaml: unexpected line %q, want `key: value # comment`", line)
		default:
			path = append(path[:len(m[1])/2], m[2])
			about := strings.Join(append(above, m[4]), " ")
			all = append(all, value{strings.Join(path, "."), m[3], strings.TrimSpace(about)})
		}
		above = nil
	}
	return all
}

// TestValues generates docs/reference/values.md from the values and the schema of the chart.
func TestValues(t *testing.T) {
	chart := filepath.Join(kit.Root, "charts/kubenergy")
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	root := reference.ReadObject(t, filepath.Join(chart, "values.schema.json"))
	all := readValues(t, string(text))
	abouts := map[string]string{}
	for _, v := range all {
		abouts[v.key] = v.about
	}
	var b strings.Builder
	var same []string // values that are the same as those of the scheduler
	flush := func() {
		if len(same) > 0 {
			fmt.Fprintf(&b, "* as for `scheduler`: %s\n", strings.Join(same, ", "))
		}
		same = nil
	}
	for i, v := range all {
		component, rest, inside := strings.Cut(v.key, ".")
		schema, group := at(root, v.key), i+1 < len(all) && strings.HasPrefix(all[i+1].key, v.key+".")
		about := v.about
		common := about == "" && slices.Contains([]string{"controller", "agent", "cli"}, component)
		if common {
			about = abouts["scheduler."+rest] // values common to all components are described there
		}
		if schema == nil || about == "" && !group {
			t.Errorf("value %s is missing in values.schema.json or has no comment in values.yaml", v.key)
		}
		if !inside {
			flush()
			fmt.Fprintf(&b, "\n## %s\n\n", component)
			if group {
				b.WriteString(strings.TrimLeft(firstSentence(v.about)+"\n\n", "\n"))
				continue
			}
		}
		otherwise := ""
		if v.otherwise != `""` && v.otherwise != "[]" && v.otherwise != "{}" {
			otherwise = code(v.otherwise)
		}
		switch {
		case about == "":
		case common:
			same = append(same, strings.TrimSpace(code(rest)+" "+prefixed("(", otherwise, ")")))
		default:
			var facts []string
			if otherwise != "" {
				facts = append(facts, "default "+otherwise)
			}
			if schema != nil && schema["enum"] != nil {
				facts = append(facts, "one of "+takes(schema))
			}
			if schema == nil || schema["enum"] == nil {
				about = firstSentence(about)
			}
			about = strings.TrimSuffix(about, ".")
			fmt.Fprintf(&b, "* %s%s: %s\n", code(v.key), prefixed(" (", strings.Join(facts, "; "), ")"), about)
		}
	}
	flush()
	reference.Hold(t, "docs/reference/values.md", "./test/docs -run TestValues", b.String(), *rewrite)
}

// TestZones generates docs/reference/zones.md from the bundled typical days.
func TestZones(t *testing.T) {
	var b strings.Builder
	above := ""
	for _, name := range forecast.TypicalZones() {
		curve, ok := forecast.TypicalDay(grid.Zone(name))
		if !ok {
			t.Errorf("zone %s has no typical day", name)
		}
		least, most := curve.Mean(), curve.Mean()
		for at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() == 2026; at = at.Add(time.Hour) {
			least, most = min(least, curve.At(at)), max(most, curve.At(at))
		}
		switch {
		case name[:1] != above:
			b.WriteString("\n* ")
		default:
			b.WriteString(", ")
		}
		above = name[:1]
		fmt.Fprintf(&b, "%s %.0f", name, curve.Mean())
		if low, high := fmt.Sprintf("%.0f", least), fmt.Sprintf("%.0f", most); low != high {
			fmt.Fprintf(&b, " (%s–%s)", low, high)
		}
	}
	reference.Hold(t, "docs/reference/zones.md", "./test/docs -run TestZones", b.String()+"\n", *rewrite)
	kit.Golden(t, filepath.Join(kit.Root, "charts", "kubenergy", "files", "zones.txt"),
		[]byte(strings.Join(forecast.TypicalZones(), "\n")+"\n"), *rewrite)
}

// at returns the schema of a key, or nil if it does not exist.
func at(root reference.Object, key string) reference.Object {
	schema := root
	for name := range strings.SplitSeq(key, ".") {
		properties, _ := schema["properties"].(reference.Object)
		schema, _ = properties[name].(reference.Object)
		if ref, ok := schema["$ref"].(string); ok {
			definitions := root["definitions"].(reference.Object)
			schema, _ = definitions[strings.TrimPrefix(ref, "#/definitions/")].(reference.Object)
		}
	}
	return schema
}

// takes returns a short description of the type that a schema accepts.
func takes(schema reference.Object) string {
	if list, ok := schema["enum"].([]any); ok {
		var names []string
		for _, item := range list {
			names = append(names, code(cmp.Or(reference.Text(item), `""`)))
		}
		return strings.Join(names, ", ")
	}
	kind := strings.Trim(strings.ReplaceAll(reference.Text(schema["type"]), `","`, " or "), `["]`)
	if schema["type"] == nil {
		kind = map[bool]string{true: "integer or string", false: ""}[schema["x-kubernetes-int-or-string"] == true]
	}
	if items, ok := schema["items"].(reference.Object); ok {
		kind = strings.TrimSuffix("list of "+takes(items), " of ")
	}
	if values, ok := schema["additionalProperties"].(reference.Object); ok {
		kind = strings.TrimSuffix("map of "+takes(values), " of ")
	}
	return kind
}

// limits returns a description of the constraints of a schema, except for maximum sizes.
func limits(schema reference.Object) string {
	var all []string
	for _, word := range []struct{ key, description string }{
		{"minimum", map[bool]string{true: "> ", false: "≥ "}[schema["exclusiveMinimum"] == true]},
		{"maximum", map[bool]string{true: "< ", false: "≤ "}[schema["exclusiveMaximum"] == true]},
		{"minLength", "characters ≥ "},
		{"minItems", "items ≥ "},
		{"minProperties", "entries ≥ "},
		{"pattern", ""},
	} {
		switch v := reference.Text(schema[word.key]); {
		case schema[word.key] == nil:
		case word.key == "pattern":
			all = append(all, code(v))
		default:
			all = append(all, word.description+v)
		}
	}
	rules, _ := schema["x-kubernetes-validations"].([]any)
	for _, item := range rules {
		rule := item.(reference.Object)
		all = append(all, cmp.Or(reference.Text(rule["message"]), code(reference.Text(rule["rule"]))))
	}
	return strings.Join(all, "; ")
}

var (
	fieldsOfOurs = regexp.MustCompile(`^(spec|status)[^ ]*$`)
	conditions   = regexp.MustCompile(`^status\.(conditions|observedGeneration)`)
)

// TestKinds generates docs/reference/kinds.md from the CRDs.
func TestKinds(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(kit.Root, "charts/kubenergy/crds/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d CRD files, error %v", len(files), err)
	}
	var b strings.Builder
	for _, file := range files {
		spec := reference.ReadObject(t, file)["spec"].(reference.Object)
		names := spec["names"].(reference.Object)
		for _, v := range spec["versions"].([]any) {
			version := v.(reference.Object)
			schema := version["schema"].(reference.Object)["openAPIV3Schema"].(reference.Object)
			about := strings.Join(strings.Fields(reference.Text(schema["description"])), " ")
			scope := map[any]string{"Cluster": "cluster-scoped", "Namespaced": "namespaced"}[spec["scope"]]
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n`%s/%s`, %s, `kubectl get %s` or `%s`.\n\n", names["kind"], about,
				spec["group"], version["name"], scope, names["plural"],
				strings.Trim(reference.Text(names["shortNames"]), `["]`))
			b.WriteString(describeFields(t, schema))
		}
	}
	reference.Hold(t, "docs/reference/kinds.md", "./test/docs -run TestKinds", b.String(), *rewrite)
}

// describeFields generates a list of the fields of a kind with the first sentences of their descriptions. Required
// fields are marked with an asterisk. Conditions are omitted because they use the type of Kubernetes, and objects
// if they have no constraints, because their fields follow.
func describeFields(t *testing.T, schema reference.Object) string {
	t.Helper()
	fields, required := map[string]reference.Object{}, map[string]bool{}
	reference.Fields("", schema, func(path string, schema reference.Object) {
		fields[path] = schema
		list, _ := schema["required"].([]any)
		for _, name := range list {
			required[strings.TrimPrefix(path+"."+reference.Text(name), ".")] = true
		}
	})
	var b strings.Builder
	described, skip := map[string]string{}, "" // paths of the objects by their fields, and a path to skip
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		if !fieldsOfOurs.MatchString(path) || conditions.MatchString(path) ||
			skip != "" && strings.HasPrefix(path, skip) {
			continue
		}
		field, element := fields[path], strings.HasSuffix(path, "[]") || strings.HasSuffix(path, ".*")
		about, inSpec := reference.Text(cmp.Or(field["description"], any(""))), strings.HasPrefix(path, "spec")
		if inSpec && about == "" && !element {
			t.Errorf("field %s has no comment in api/v1alpha1", path)
		}
		if properties, ok := field["properties"].(reference.Object); ok && len(properties) > 1 {
			text := reference.Text(properties)
			if first := described[text]; first != "" {
				skip = path + "."
				fmt.Fprintf(&b, "* `%s`: like `%s`\n", path, first)
				continue
			}
			described[text] = path
		}
		constraints := limits(field)
		_, nested := field["properties"]
		if constraints == "" && (element || !strings.Contains(path, ".") || nested && !required[path]) {
			continue
		}
		var facts []string
		if inSpec && (!nested || constraints == "") {
			facts = append(facts, takes(field))
		}
		if field["default"] != nil {
			facts = append(facts, "default "+code(reference.Text(field["default"])))
		}
		if constraints != "" && inSpec {
			facts = append(facts, constraints)
		}
		name := code(path)
		if required[path] && inSpec {
			name += "*"
		}
		own := path[strings.LastIndex(path, ".")+1:]
		if about = strings.Join(strings.Fields(about), " "); field["enum"] == nil || !inSpec {
			about = firstSentence(about)
		}
		about, isOwn := strings.CutPrefix(about, own+" ")
		if element || nested || !isOwn {
			about = "" // describes the type
		}
		about = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(about, "are "), "is "), "the ")
		fmt.Fprintf(&b, "* %s%s%s\n", name, prefixed(" (", strings.Join(facts, "; "), ")"),
			prefixed(": ", strings.TrimSuffix(about, "."), ""))
	}
	return b.String()
}

// firstSentence returns the first sentence of a text and sentences about its default, without line breaks.
func firstSentence(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	var first []string
	for i, s := range strings.Split(sentence.ReplaceAllString(text, "$1.\n$2"), "\n") {
		if i == 0 || strings.HasPrefix(s, "Default") || strings.HasPrefix(s, "If empty") {
			first = append(first, s)
		}
	}
	return strings.Join(first, " ")
}

var sentence = regexp.MustCompile(`([^.][^.][^.])\. ([A-Z{0-9])`)

// prefixed returns a text with a prefix and a suffix, or nothing if it is empty.
func prefixed(prefix, text, suffix string) string {
	if text == "" {
		return ""
	}
	return prefix + text + suffix
}

// TestMetricsPage verifies that docs/reference/metrics.md contains all metrics in the code.
func TestMetricsPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(kit.Root, "docs/reference/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	metric := regexp.MustCompile(`^kubenergy_[a-z0-9_]*[a-z0-9]$`)
	const influx = "kubenergy_energy" // measurement in the InfluxDB line protocol
	reference.ReadCode(t).All(func(name string) {
		if metric.MatchString(name) && name != influx && !bytes.Contains(text, []byte("`"+name)) {
			t.Errorf("docs/reference/metrics.md does not mention %s", name)
		}
	})
}
