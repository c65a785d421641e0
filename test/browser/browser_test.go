package browser_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/kubenergy/kubenergy/test/browser"
	"github.com/kubenergy/kubenergy/test/kit"
)

func sizes() []browser.Size {
	if os.Getenv("KUBENERGY_LONG") != "" {
		return browser.Sizes
	}
	return browser.Sizes[:1]
}

// results runs a kubenergy command that writes a directory and returns the path of that directory.
func results(t *testing.T, args ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "results")
	cmd := exec.Command(kit.Build(t, "./cmd/kubenergy"), append(args, "--out", dir)...)
	cmd.Dir = kit.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// TestPagesOfASimulation checks every view of the output of simulate and the interactive elements of the first
// view.
func TestPagesOfASimulation(t *testing.T) {
	b := browser.Open(t, browser.Serve(t, "--dir", results(t, "simulate", "-f", "scenarios/demo/scenario.yaml")))
	b.Check("simulate", sizes(), "now", "job", "decisions", "savings", "compare", "how")
	t.Run("axe", b.Accessible)
	t.Run("paint", func(t *testing.T) {
		machine := kit.WatchMachine(t)
		if took := b.FirstPaint("/"); took > time.Second {
			machine.TooSlow("first paint took %v, want at most one second", took)
		}
	})
	b.As(browser.Laptop, "light")
	b.Visit("/")
	const (
		rooms = `[...document.querySelectorAll('#bands .room')].map(r => r.innerHTML)`
		from  = `document.body.dataset.from`
	)
	whole, start := browser.Eval[[]string](b, rooms), browser.Eval[string](b, from)
	b.Drag(500, 300, 800, 300)
	b.Await(`location.search.includes('from=') && ` + from + ` !== '` + start + `'`)
	for i, now := range browser.Eval[[]string](b, rooms) {
		if now == whole[i] {
			t.Errorf("selecting an interval did not change drawing %d", i)
		}
	}
	brushed := browser.Eval[string](b, from)
	b.Press(kb.ArrowRight)
	b.Await(from + ` > '` + brushed + `'`)
	b.Press("0")
	b.Await(from + ` === '` + start + `'`)
	b.Press("/")
	b.Await(`document.activeElement.id === 'search'`)
	b.Click(".theme")
	b.Await(`document.documentElement.dataset.theme === 'dark'`)
}

// TestPagesOfAComparison checks the views of the output of compare, which have no time axis.
func TestPagesOfAComparison(t *testing.T) {
	b := browser.Open(t, browser.Serve(t, "--dir", results(t, "compare", "-f", "scenarios/demo/comparison.yaml")))
	b.Check("compare", sizes(), "now", "compare")
	t.Run("axe", b.Accessible)
}

var pictures = flag.String("pictures", "", "directory in which to write the screenshots of the documentation")

// TestPictures creates the screenshots of the documentation from the scenario that make demo replays.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("writes the screenshots of the documentation: run make pictures")
	}
	b := browser.Open(t, browser.Serve(t, "--dir", results(t, "simulate", "-f", "scenarios/demo/scenario.yaml")))
	for _, p := range []struct{ name, path, theme string }{
		{"overview-light", "/", "light"},
		{"overview-dark", "/", "dark"},
		{"job", "/job?kind=job&namespace=&name=demo-027", "light"},
		{"savings", "/savings", "light"},
	} {
		b.As(browser.Laptop, p.theme)
		b.Visit(p.path)
		b.Picture(filepath.Join(*pictures, p.name+".webp"), browser.Laptop)
	}
}
