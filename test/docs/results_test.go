package docs

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"go/ast"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/cli"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/reference"
)

const resultsPage = "docs/reference/results.md"

// described returns the names before the colons of the lists on the results page, by heading.
func described(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(kit.Root, resultsPage))
	if err != nil {
		t.Fatal(err)
	}
	heading, first := regexp.MustCompile("^###? (.*)"), regexp.MustCompile("^\\* ((?:`[^`]+`(?:, )?)+)")
	quoted, section, names := regexp.MustCompile("`([^`]+)`"), "", map[string][]string{}
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\n  ", " ")) {
		if m := heading.FindStringSubmatch(line); m != nil {
			section = strings.ReplaceAll(m[1], "`", "")
		} else if m := first.FindStringSubmatch(line); m != nil {
			for _, name := range quoted.FindAllStringSubmatch(m[1], -1) {
				names[section] = append(names[section], name[1])
			}
		}
	}
	return names
}

// TestResults compares docs/reference/results.md with the files written by a simulation and a comparison and with
// the downloads of the dashboard.
func TestResults(t *testing.T) {
	have, dir := described(t), t.TempDir()
	folders := map[string]string{"simulate": filepath.Join(dir, "s"), "compare": filepath.Join(dir, "c")}
	for command, file := range map[string]string{"simulate": "demo/scenario.yaml", "compare": "gaia/sample.yaml"} {
		var b bytes.Buffer
		if code := cli.Run(t.Context(), []string{
			command, "-f", filepath.Join(kit.Root, "scenarios", file), "--out", folders[command],
		}, nil, &b, &b); code != 0 {
			t.Fatalf("%s: exit code %d\n%s", command, code, b.String())
		}
	}
	for command, folder := range folders {
		files, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			name := f.Name()
			section := command + " --out: " + name
			switch filepath.Ext(name) {
			case ".csv":
				sameNames(t, section, have[section], header(t, read(t, folder, name)))
			case ".json", ".jsonl":
				for _, key := range fields(t, read(t, folder, name), filepath.Ext(name) == ".jsonl") {
					if !slices.Contains(have[section], key) {
						t.Errorf("%s does not contain field %s of %s", resultsPage, key, section)
					}
				}
			default:
				name = strings.TrimSuffix(strings.TrimSuffix(name, ".svg"), ".png")
				if all := have[command+" --out"]; !slices.Contains(all, name) {
					t.Errorf("%s does not contain file %s of %s --out, but only %q", resultsPage, name, command, all)
				}
			}
		}
	}
	zones := strings.NewReplacer("SYNTHETIC", "ZONE", "least-allocated, machines stay on", "BASELINE")
	for of, text := range downloads(t, folders["simulate"], "grid", "power", "work", "decisions") {
		sameNames(t, "dashboard: "+of, have["dashboard: "+of], header(t, zones.Replace(text)))
	}
}

func sameNames(t *testing.T, section string, have, want []string) {
	t.Helper()
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("columns in %s, section %q:\n%q\nwant:\n%q", resultsPage, section, have, want)
	}
}

func read(t *testing.T, folder, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func header(t *testing.T, text string) []string {
	t.Helper()
	names, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// fields returns the fields of a JSON object. If lines is set, text contains one object per line, and the fields of
// nested objects are included.
func fields(t *testing.T, text string, lines bool) []string {
	t.Helper()
	found := map[string]bool{}
	for d := json.NewDecoder(strings.NewReader(text)); d.More(); {
		var object map[string]any
		if err := d.Decode(&object); err != nil {
			t.Fatal(err)
		}
		for key, value := range object {
			found[key] = true
			if inner, ok := value.(map[string]any); ok && lines {
				for name := range inner {
					found[key+"."+name] = true
				}
			}
		}
	}
	return slices.Collect(maps.Keys(found))
}

// downloads returns the CSV tables that the dashboard serves for a directory, by name.
func downloads(t *testing.T, dir string, names ...string) map[string]string {
	t.Helper()
	source, err := dashboard.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	page := dashboard.NewServer(source, listener.Addr(), time.Now)
	server := httptest.NewUnstartedServer(page.Handler())
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	get := func(address string) string {
		answer, err := client.Get(address)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("GET %s: error %v, status %s\n%s", address, err, answer.Status, text)
		}
		return string(text)
	}
	get(page.Address())
	texts := map[string]string{}
	for _, name := range names {
		texts[name] = get(server.URL + "/csv?of=" + name)
	}
	return texts
}

// TestColumns verifies that docs/reference/results.md describes the columns of every CSV table in the code. One
// section must contain all columns of a table. Conversely, columns on the page must exist in the code.
func TestColumns(t *testing.T) {
	sections, c, tables := described(t), reference.ReadCode(t), 0
	look := func(file string, columns []string) {
		missing := columns
		for _, names := range sections {
			left := slices.DeleteFunc(slices.Clone(columns), func(name string) bool { return slices.Contains(names, name) })
			if len(left) < len(missing) {
				missing = left
			}
		}
		tables += min(1, len(columns))
		if len(missing) > 0 {
			t.Errorf("%s does not contain the columns %q of a table in package %s", resultsPage, missing, file)
		}
	}
	for folder, files := range c.Files {
		for _, file := range files {
			var fields []string // columns of a table that is written column by column
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if name := fmt.Sprint(n.Fun); name == "Sheet" || name == "&{report Sheet}" {
						look(file.Name.Name, texts(c, folder, n.Args...))
					}
				case *ast.KeyValueExpr:
					if fmt.Sprint(n.Key) == "Field" {
						fields = append(fields, texts(c, folder, n.Value)...)
					}
				}
				return true
			})
			look(file.Name.Name, fields)
		}
	}
	if tables < 14 {
		t.Errorf("found only %d tables in the code", tables)
	}
	said := map[string]bool{}
	c.All(func(text string) { said[text] = true })
	for section, names := range sections {
		for _, name := range names {
			if strings.HasSuffix(section, "-o csv") && !strings.Contains(name, "…") && !said[name] {
				t.Errorf("%s contains column %s in section %s, which does not exist in the code",
					resultsPage, name, section)
			}
		}
	}
}

// texts returns the values of the expressions that are constant strings.
func texts(c *reference.Code, folder string, all ...ast.Expr) (found []string) {
	for _, e := range all {
		if text, ok := c.Text(folder, e); ok {
			found = append(found, text)
		}
	}
	return found
}
