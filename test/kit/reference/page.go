package reference

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/test/kit"
)

// Hold compares the generated part of a page with want, or replaces it if rewrite is set. The part is enclosed in
// two comments. The first comment contains the arguments of go test that select the test, for example "./test/docs
// -run TestValues".
func Hold(t testing.TB, page, test, want string, rewrite bool) {
	t.Helper()
	path := filepath.Join(kit.Root, filepath.FromSlash(page))
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin := "<!-- The reference is written by go test " + test + " -rewrite -->\n"
	const end = "<!-- End of the reference -->\n"
	before, rest, begins := strings.Cut(string(text), begin)
	have, after, ends := strings.Cut(rest, end)
	want = strings.TrimRight(want, "\n") + "\n\n"
	switch {
	case !begins || !ends:
		t.Fatalf("%s lacks the comments that enclose the output of %s: %s%s", page, test, begin, end)
	case have == want:
	case !rewrite:
		t.Errorf("%s is outdated, run go test %s -rewrite (-have +want):\n%s", page, test, cmp.Diff(have, want))
	default:
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
