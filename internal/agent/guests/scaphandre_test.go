package guests_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/guests"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// Scaphandre's QEMU exporter adds the power in microwatts to the counter in microjoules once per iteration of five
// seconds, so the counter advances at a fifth of the actual energy. It also truncates the file before it writes, so
// that a reader may find it empty. This package publishes the actual energy atomically.
func Example() {
	dir, err := os.MkdirTemp("", "guests")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	const watts, loop = 40, 5 // power of the virtual machine
	theirs := filepath.Join(dir, "theirs")
	publisher, err := guests.Open(filepath.Join(dir, "ours"), "hv",
		slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	defer publisher.Close()

	empty := 0
	for second := 1; second <= 600; second++ {
		publisher.Add("web", watts*1e6, energy.Derived)
		if err := publisher.Publish(time.Duration(second)*time.Second, []string{"web"}); err != nil {
			panic(err)
		}
		if second%loop != 0 {
			continue
		}
		text, _ := os.ReadFile(theirs)
		sum, _ := strconv.ParseInt(string(text), 10, 64)
		f, err := os.Create(theirs) // truncates
		if err != nil {
			panic(err)
		}
		if text, _ := os.ReadFile(theirs); len(text) == 0 {
			empty++
		}
		_, _ = f.WriteString(strconv.FormatInt(sum+watts*1e6, 10))
		_ = f.Close()
	}

	read := func(path string) float64 {
		text, _ := os.ReadFile(path)
		microjoules, _ := strconv.ParseFloat(string(text), 64)
		return microjoules / 1e6
	}
	fmt.Printf("used:  %d J\n", watts*600)
	fmt.Printf("ours:  %.0f J\n", read(filepath.Join(dir, "ours", "web", "intel-rapl:0", "energy_uj")))
	fmt.Printf("loop:  %.0f J, and empty %d times\n", read(theirs), empty)
	// Output:
	// used:  24000 J
	// ours:  24000 J
	// loop:  4800 J, and empty 120 times
}
