package surface

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/delivery/killtest"
	"github.com/kubenergy/kubenergy/test/kit"
)

// The state directory was recorded with the first release, from an agent that was killed while the controller responded
// with 503. It contains five sealed batches and a newer slot with the subsequent state. The counter values range from
// first to last, starting ten seconds after boot (in a time namespace). The second test therefore requires a machine
// with a longer uptime.
const (
	stateFolder = "testdata/state"
	stateBoot   = "9ea9d0b1-6316-488d-be8e-04734b41c276"
	stateEpoch  = "RT3E7D5I6GY3EJCS4MSFZJQSI2"
	first, last = 4_000_000_000_039_380, 4_000_000_001_941_140
)

// A sink acknowledges batches and sums their energy by the epoch of their streams.
type sink struct {
	mu     sync.Mutex
	next   map[string]uint64
	joules map[string]int64 // in microjoules
	wrong  []string
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var b struct {
		Stream      struct{ Node, Boot, Epoch string }
		First, Last uint64
		Measured    int64
	}
	body, err := io.ReadAll(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" && err == nil {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(z)
		}
	}
	if err == nil {
		err = json.Unmarshal(body, &b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch := b.Stream.Epoch
	if err != nil || b.Stream.Node != "node-1" || epoch == stateEpoch && b.First != s.next[epoch]+1 {
		s.wrong = append(s.wrong, fmt.Sprintf("%v, %.300s", err, body))
	}
	s.next[epoch] = b.Last
	s.joules[epoch] += b.Measured
	fmt.Fprintf(w, `{"epoch":%q,"acked":%d}`, epoch, b.Last)
}

// TestOldStateFolder verifies that the current agent can continue with the state of an older agent. After a reboot,
// it delivers all stored energy. On the same boot, it also delivers the energy counted while no agent was running.
// All energy must be delivered exactly once.
func TestOldStateFolder(t *testing.T) {
	now, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		boot string
		want int64
	}{
		"after a reboot":   {"00000000-0000-4000-8000-000000000000", last - first},
		"on the same boot": {strings.TrimSpace(string(now)), last - first + 2_000_000 + step},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sink{next: map[string]uint64{}, joules: map[string]int64{}}
			server := httptest.NewServer(s)
			defer server.Close()
			state := t.TempDir()
			copyState(t, state, c.boot)
			startAgent(t, last+2_000_000, "--state-dir", state, "--push-url", server.URL, "--batch-interval", "1s")
			sum := func() (int64, []string) {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.joules[stateEpoch], s.wrong
			}
			kit.Await(t, time.Minute, "the energy of the old stream is received", func(context.Context) (bool, error) {
				joules, wrong := sum()
				return joules >= c.want, fmt.Errorf("received %d µJ, want %d; errors: %q", joules, c.want, wrong)
			})
			time.Sleep(1500 * time.Millisecond) // no further batch must follow
			if joules, wrong := sum(); joules != c.want || len(wrong) > 0 {
				t.Errorf("received %d µJ of the old stream, want %d; errors: %q", joules, c.want, wrong)
			}
		})
	}
}

// copyState copies the state directory and replaces its boot ID.
func copyState(t *testing.T, to, boot string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(stateFolder, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("got %d files, error %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// The format is an 8-byte magic number, the checksum of the remaining bytes, the length of the content, and
		// the content.
		data = bytes.ReplaceAll(data, []byte(stateBoot), []byte(boot))
		end := 16 + binary.LittleEndian.Uint32(data[12:])
		binary.LittleEndian.PutUint32(data[8:], crc32.Checksum(data[12:end], crc32.MakeTable(crc32.Castagnoli)))
		if err := os.WriteFile(filepath.Join(to, filepath.Base(file)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// step is the advance of the counter of startAgent in microjoules.
const step = 10

// startAgent runs the agent until the test ends and returns its address. The counter of the machine advances once,
// after the agent responds.
func startAgent(t *testing.T, counter int64, args ...string) string {
	t.Helper()
	zone := filepath.Join(t.TempDir(), "intel-rapl:0")
	if err := os.Mkdir(zone, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"name": "package-0", "max_energy_range_uj": "9000000000000000", "energy_uj": strconv.FormatInt(counter, 10),
	} {
		if err := os.WriteFile(filepath.Join(zone, name), []byte(content+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	address := kit.Address(t)
	var log bytes.Buffer
	cmd := exec.Command(kit.Build(t, "./cmd/kubenergy-agent"), append([]string{
		"--node-name", "node-1", "--listen", address, "--interval", "100ms", "--meters", "rapl",
		"--powercap-root", filepath.Dir(zone),
	}, args...)...)
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("log of the agent:\n%s", log.String())
		}
	})
	// A counter that does not advance after its first reading is not plausible.
	kit.Eventually(t, time.Minute, "the agent ticks", func() bool { return killtest.Ticks(address) > 2 })
	later := strconv.FormatInt(counter+step, 10) + "\n"
	if err := os.WriteFile(filepath.Join(zone, "energy_uj"), []byte(later), 0o644); err != nil {
		t.Fatal(err)
	}
	return address
}
