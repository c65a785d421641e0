package lifecycle

import (
	"os"
	"strings"
	"testing"
)

// document contains the commands of a section of a document in order. A test consumes them one by one and fails if
// a command differs from the expectation, so the test performs the same steps as a reader.
type document struct {
	name     string
	commands []string
}

// commandsOf reads the commands in the sh blocks of a section, or of the whole document if heading is empty. Blocks
// marked as not tested are skipped.
func commandsOf(t *testing.T, path, heading string) *document {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	section := string(text)
	if heading != "" {
		_, after, found := strings.Cut(section, "\n"+heading+"\n")
		if !found {
			t.Fatalf("%s has no section %q", path, heading)
		}
		section, _, _ = strings.Cut(after, "\n## ")
	}
	d := &document{name: path}
	shell := false
	var command []string
	for line := range strings.Lines(section) {
		line = strings.TrimRight(line, "\n")
		if fence, ok := strings.CutPrefix(line, "```"); ok {
			shell = fence == "sh" || strings.HasPrefix(fence, "sh test=")
		} else if shell {
			if command = append(command, line); !goesOn(command) {
				d.commands, command = append(d.commands, strings.Join(command, "\n")), nil
			}
		}
	}
	return d
}

// goesOn reports whether a command is continued on the next line, because of a backslash, a pipe, an unfinished
// loop or a here-document that ends with END.
func goesOn(lines []string) bool {
	last := strings.TrimSpace(lines[len(lines)-1])
	if strings.Contains(lines[0], "<<'END'") {
		return last != "END"
	}
	opened, closed := 0, 0
	for _, l := range lines {
		for word := range strings.FieldsSeq(l) {
			switch strings.TrimSuffix(word, ";") {
			case "do":
				opened++
			case "done":
				closed++
			}
		}
	}
	return strings.HasSuffix(last, "\\") || strings.HasSuffix(last, "|") || opened > closed
}

// next consumes the next command, which must start with the given prefix.
func (d *document) next(t *testing.T, beginning string) string {
	t.Helper()
	if len(d.commands) == 0 {
		t.Fatalf("%s ends before the command %q", d.name, beginning)
	}
	command := d.commands[0]
	d.commands = d.commands[1:]
	if !strings.HasPrefix(command, beginning) {
		t.Fatalf("next command in %s is %q, want %q…", d.name, command, beginning)
	}
	return command
}

// end verifies that all commands have been consumed.
func (d *document) end(t *testing.T) {
	t.Helper()
	if len(d.commands) > 0 {
		t.Errorf("%s contains commands that were not run: %q", d.name, d.commands)
	}
}

func TestCommandsOf(t *testing.T) {
	path := t.TempDir() + "/d.md"
	text := "# A\n\n## B\n\nSay:\n\n```sh\nhelm install x \\\n    --set a=b\nkubectl get y   # " +
		"why\n```\n\n```yaml\na: b\n```\n\n" +
		"```sh notest=\"why\"\nrm\n```\n```sh test=TestLifecycle\ncat > f <<'END'\na: b\nEND\n" +
		"kubectl get z |\n  while read -r a; do\n    echo $a\n  done\nls\n```\n\nEnd.\n\n## C\n\n```sh\nrm\n```\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d := commandsOf(t, path, "## B")
	want := []string{
		"helm install x \\\n    --set a=b", "kubectl get y   # why", "cat > f <<'END'\na: b\nEND",
		"kubectl get z |\n  while read -r a; do\n    echo $a\n  done", "ls",
	}
	if got, want := strings.Join(d.commands, "\n--\n"), strings.Join(want, "\n--\n"); got != want {
		t.Errorf("commandsOf() =\n%s\nwant\n%s", got, want)
	}
}
