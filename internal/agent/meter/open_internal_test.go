package meter

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// all creates a machine with all kinds of meters.
func all(t testing.TB, c *clock) Config {
	o := c.config()
	o.PowercapRoot, o.HwmonRoot, o.GuestDir = plant(t, "rapl/laptop.tree"), plant(t, "hwmon/server.tree"),
		plant(t, "guest/kubenergy.tree")
	return o
}

func openAll(t testing.TB, o Config) []Meter {
	t.Helper()
	meters, err := Open(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Close(meters) })
	return meters
}

func kindsOf(meters []Meter) string {
	var all []string
	for _, m := range meters {
		all = append(all, m.Name())
	}
	return strings.Join(all, " ")
}

func TestOpenTakesWhatIsThere(t *testing.T) {
	c := newClock()
	before := descriptors(t)
	if got := kindsOf(openAll(t, c.config())); got != "model" {
		t.Errorf("without meters: %s", got)
	}
	o := all(t, c)
	if got := kindsOf(openAll(t, o)); got != "hwmon rapl guest model" {
		t.Errorf("with all: %s", got)
	}
	o.Meters = []string{"model", "rapl"}
	if got := kindsOf(openAll(t, o)); got != "rapl model" {
		t.Errorf("configured meters: %s", got)
	}
	o.Meters = []string{"guest"}
	o.GuestDir = "/nowhere" // does not need to exist yet
	if got := kindsOf(openAll(t, o)); got != "guest" {
		t.Errorf("configured meters: %s", got)
	}
	afterAll := descriptors(t)
	for asked, want := range map[string]string{
		"rapl": "no zones", "hwmon": "wall-sensor", "model": "profile", "kepler": "kepler-url", "solar": "solar",
	} {
		o := c.config()
		o.Meters = []string{"guest", asked}
		if asked == "model" {
			o.Profile = "/nowhere"
		}
		_, err := Open(o, quiet())
		mustFail(t, err, want)
	}
	if n := descriptors(t); n != afterAll || n < before {
		t.Errorf("%d descriptors after failures, before %d", n, afterAll)
	}
}

func TestAutoWithoutTheRight(t *testing.T) {
	c := newClock() // root may read all files, so unreadable files are simulated by links, which are not followed
	o := all(t, c)
	o.GuestDir = "/nowhere"
	for _, path := range []string{
		"intel-rapl/intel-rapl:0", "intel-rapl/intel-rapl:1", "intel-rapl-mmio/intel-rapl-mmio:0",
		"intel-rapl/intel-rapl:0/intel-rapl:0:0", "intel-rapl/intel-rapl:0/intel-rapl:0:1",
	} {
		file := filepath.Join(o.PowercapRoot, path, "energy_uj")
		if err := os.Rename(file, file+".real"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(file+".real", file); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	meters, err := Open(o, logTo(&out))
	if err != nil {
		t.Fatal(err)
	}
	defer Close(meters)
	if got := kindsOf(meters); got != "hwmon model" {
		t.Errorf("got %s", got)
	}
	if !strings.Contains(out.String(), "energy_uj") {
		t.Errorf("the log does not contain the reason: %s", out.String())
	}
	o.Meters = []string{"rapl"}
	_, err = Open(o, quiet())
	mustFail(t, err, "energy_uj")
}

func TestRootIsChosenWithoutOverlap(t *testing.T) {
	c := newClock()
	nowhere := func(roots ...*string) {
		for _, root := range roots {
			*root = "/nowhere"
		}
	}
	for _, test := range []struct {
		change              func(*Config)
		source, root, parts string
	}{
		{func(*Config) {}, "wall (hwmon)", "wall", "package-0"},
		{func(o *Config) { nowhere(&o.HwmonRoot) }, "psys (rapl)", "psys", "package-0"},
		{func(o *Config) {
			nowhere(&o.HwmonRoot)
			o.PowercapRoot = plant(t, "rapl/two-sockets.tree")
		}, "package+dram (rapl)", "package-0 package-1 dram-0 dram-1", ""},
		{func(o *Config) {
			nowhere(&o.HwmonRoot)
			o.PowercapRoot = plant(t, "rapl/epyc.tree")
		}, "package (rapl)", "package-0", ""},
		{func(o *Config) { nowhere(&o.HwmonRoot, &o.PowercapRoot) }, "guest (guest)", "guest", ""},
		{func(o *Config) { nowhere(&o.HwmonRoot, &o.PowercapRoot, &o.GuestDir) }, "model (model)", "model", ""},
		{func(o *Config) { o.Meters = []string{"rapl", "model"} }, "psys (rapl)", "psys", "package-0"},
	} {
		o := all(t, c)
		test.change(&o)
		r := NewRoot(&o, openAll(t, o))
		root, parts := r.Domains()
		if r.Source() != test.source || names(root) != test.root || names(parts) != test.parts {
			t.Errorf("%s: root %s, parts %s; want %s: %s, %s", r.Source(), names(root), names(parts), test.source,
				test.root, test.parts)
		}
	}
}

// fixed is a meter with fixed domains.
type fixed struct {
	name    string
	domains []energy.Domain
}

func (f *fixed) Name() string             { return f.name }
func (f *fixed) Domains() []energy.Domain { return f.domains }
func (f *fixed) Resume([]energy.Reading)  {}
func (f *fixed) Close() error             { return nil }
func (f *fixed) Read(_ Tick, into []energy.Reading) ([]energy.Reading, error) {
	return into, nil
}

func domain(k energy.DomainKind, name string) energy.Domain {
	return energy.Domain{Kind: k, Name: name}
}

// rootOf returns the root of meters that are read every second.
func rootOf(c *clock, meters ...Meter) *Root {
	o := c.config()
	return NewRoot(&o, meters)
}

// split advances the clock by a second and returns the readings of the root and its parts.
func (c *clock) split(r *Root, readings []energy.Reading) (root, parts []energy.Reading) {
	var o energy.Observation
	c.after(time.Second)
	r.Split(c.now, readings, &o)
	return o.Root, o.Parts
}

func TestRootWaitsForAnAnswer(t *testing.T) {
	c := newClock()
	kepler := &fixed{name: NameKepler}
	model := &fixed{name: NameModel, domains: []energy.Domain{domain(energy.Model, "model")}}
	r := rootOf(c, kepler, model)
	readings := []energy.Reading{{Domain: model.domains[0], At: 1}}
	if root, _ := c.split(r, readings); len(root) != 0 || r.Source() != "" {
		t.Errorf("selected the model instead of Kepler: %v", root)
	}
	kepler.domains = []energy.Domain{domain(energy.Package, "kepler-package-0"), domain(energy.Psys, "kepler-psys")}
	readings = append(readings, energy.Reading{Domain: kepler.domains[0], At: 1},
		energy.Reading{Domain: kepler.domains[1], At: 2})
	root, parts := c.split(r, readings)
	if len(root) != 1 || root[0].At != 2 || len(parts) != 1 || r.Source() != "psys (kepler)" {
		t.Errorf("%s: %v, %v", r.Source(), root, parts)
	}
	// An agent without usable domains is skipped.
	kepler.domains = []energy.Domain{domain(energy.DRAM, "kepler-dram-0")}
	if r := rootOf(c, kepler, model); r.Source() != "model (model)" {
		t.Errorf("with DRAM only: %s", r.Source())
	}
	// An agent that never responds is not waited for forever, and used when it responds.
	kepler.domains = nil
	r = rootOf(c, kepler, model)
	for range 15 {
		c.split(r, readings[:1])
	}
	if r.Source() != "model (model)" {
		t.Errorf("without a response: Source() = %q", r.Source())
	}
	kepler.domains = []energy.Domain{domain(energy.Psys, "kepler-psys")}
	for range 122 {
		c.split(r, readings)
	}
	if r.Source() != "psys (kepler)" {
		t.Errorf("after a late response: Source() = %q", r.Source())
	}
}

func TestRootOfTwoPsysIsNotAdded(t *testing.T) {
	rapl := &fixed{name: NameRAPL, domains: []energy.Domain{
		domain(energy.Psys, "psys"), domain(energy.Psys, "psys-1"), domain(energy.Package, "package-0"),
		domain(energy.Package, "package-1"),
	}}
	if r := rootOf(newClock(), rapl); r.Source() != "package (rapl)" {
		t.Errorf("Source() = %s", r.Source())
	}
}

// TestRootMustBePlausible runs a node with several meters that fail at times, and verifies its root in each second. A
// counter that does not advance is stuck; the meter stops returning it after 15 s.
func TestRootMustBePlausible(t *testing.T) {
	wall, psys := domain(energy.Wall, "wall"), domain(energy.Psys, "psys")
	packages := []energy.Domain{domain(energy.Package, "package-0"), domain(energy.Package, "package-1")}
	dram, guest, model := domain(energy.DRAM, "dram-0"), domain(energy.Guest, "guest"), domain(energy.Model, "model")
	const forever = 1000
	type span struct{ from, to int } // seconds
	for name, test := range map[string]struct {
		meters        []Meter
		absent, stuck map[string]span
		want          map[int]string // source from a second on
		counted       map[int]bool   // whether there are readings of the root in a second
	}{
		"all work": {
			want: map[int]string{0: "wall (hwmon)"}, counted: map[int]bool{0: true, 1: true, 500: true},
		},
		"never readable": {
			absent:  map[string]span{"wall": {0, forever}},
			want:    map[int]string{0: "wall (hwmon)", 2: "psys (rapl)"},
			counted: map[int]bool{0: false, 1: false, 2: true, 3: true},
		},
		"stuck from the start": {
			stuck:   map[string]span{"psys": {0, forever}},
			absent:  map[string]span{"wall": {0, forever}},
			want:    map[int]string{0: "wall (hwmon)", 2: "psys (rapl)", 16: "package+dram (rapl)"},
			counted: map[int]bool{2: true, 3: false, 15: false, 16: true, 17: true},
		},
		"a short failure": {
			absent:  map[string]span{"wall": {100, 129}},
			want:    map[int]string{0: "wall (hwmon)"},
			counted: map[int]bool{99: true, 100: false, 128: false, 129: true},
		},
		"a long failure": {
			absent:  map[string]span{"wall": {100, 200}, "psys": {90, forever}, "dram-0": {300, forever}},
			want:    map[int]string{0: "wall (hwmon)", 129: "package+dram (rapl)", 319: "wall (hwmon)"},
			counted: map[int]bool{128: false, 129: true, 300: false, 319: true, 320: true},
		},
		"a memory counter": {
			absent: map[string]span{"wall": {0, forever}, "psys": {0, forever}, "dram-0": {100, forever}},
			want:   map[int]string{2: "package+dram (rapl)", 129: "package (rapl)"},
		},
		"one of two packages": {
			absent: map[string]span{"wall": {0, forever}, "psys": {0, forever}, "package-1": {100, 300}},
			want:   map[int]string{2: "package+dram (rapl)", 129: "model (model)", 419: "package+dram (rapl)"},
		},
		"a virtual machine": {
			meters: []Meter{
				&fixed{name: NameGuest, domains: []energy.Domain{guest}},
				&fixed{name: NameModel, domains: []energy.Domain{model}},
			},
			absent: map[string]span{"guest": {100, forever}},
			want:   map[int]string{0: "guest (guest)"}, counted: map[int]bool{99: true, 100: false, 900: false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClock()
			if test.meters == nil {
				test.meters = []Meter{
					&fixed{name: NameHwmon, domains: []energy.Domain{wall}},
					&fixed{name: NameRAPL, domains: append([]energy.Domain{psys, dram}, packages...)},
					&fixed{name: NameModel, domains: []energy.Domain{model}},
				}
			}
			r, source := rootOf(c, test.meters...), ""
			c.now -= time.Second
			for s := range forever {
				var readings []energy.Reading
				for _, m := range test.meters {
					for _, d := range m.Domains() {
						total, at := energy.Microjoules(s), c.now+time.Second
						if f, ok := test.stuck[d.Name]; ok && s >= f.from && s < f.to {
							total = energy.Microjoules(f.from)
							if s > f.from+15 {
								continue
							}
						}
						if f, ok := test.absent[d.Name]; !ok || s < f.from || s >= f.to {
							readings = append(readings, energy.Reading{Domain: d, At: at, Total: total})
						}
					}
				}
				root, _ := c.split(r, readings)
				if next, ok := test.want[s]; ok {
					source = next
				}
				if source != "" && r.Source() != source {
					t.Fatalf("second %d: Source() = %s, want %s", s, r.Source(), source)
				}
				if want, ok := test.counted[s]; ok && len(root) > 0 != want {
					t.Fatalf("second %d: root = %v, want readings: %v", s, root, want)
				}
			}
		})
	}
}

// TestRootEarlier verifies that another root comes with its readings at the last advance of the previous one.
func TestRootEarlier(t *testing.T) {
	c := newClock()
	wall, socket := domain(energy.Wall, "wall"), domain(energy.Package, "package-0")
	r := rootOf(c, &fixed{name: NameHwmon, domains: []energy.Domain{wall}},
		&fixed{name: NameRAPL, domains: []energy.Domain{socket}})
	var o energy.Observation
	for s := 1; len(o.EarlierRoot) == 0; s++ {
		at := c.after(time.Second).Now()
		readings := []energy.Reading{{Domain: socket, At: at, Total: energy.Microjoules(s)}}
		if s <= 10 {
			readings = append(readings, energy.Reading{Domain: wall, At: at, Total: energy.Microjoules(s)})
		}
		if r.Split(c.now, readings, &o); s == 100 {
			t.Fatal("the root did not change")
		}
	}
	if o.EarlierRoot[0].Total != 10 || o.EarlierRoot[0].Domain != socket || len(o.EarlierParts) != 0 ||
		len(o.Root) != 1 || o.Root[0].Total != 40 {
		t.Errorf("root %+v, earlier %+v, want 40 and 10 µJ", o.Root, o.EarlierRoot)
	}
	if r.Split(c.now, nil, &o); len(o.EarlierRoot) != 0 {
		t.Errorf("earlier readings are repeated: %+v", o)
	}
}

func TestConfig(t *testing.T) {
	c := DefaultConfig()
	fs := flag.NewFlagSet("x", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	c.AddFlags(fs)
	err := fs.Parse(strings.Fields("--meters rapl,kepler --kepler-url http://localhost:28282/metrics --calibrate " +
		"rapl=1.05 --calibrate package-0=0.98 " +
		"--wall-sensor a/b --wall-sensor c --scaphandre-factor 5 --scrape-interval 2s --powercap-root /p " +
		"--hwmon-root /h --guest-dir /g --profile /f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Meters, []string{"rapl", "kepler"}) || !slices.Equal(c.WallSensors, []string{"a/b", "c"}) ||
		c.Profile != "/f" ||
		c.scale("rapl", "package-0") != 980_000 || c.scale("rapl", "dram-0") != 1_050_000 ||
		c.scaphandreScale(980_000) != 4_900_000 {
		t.Errorf("%+v", c)
	}
	mustFail(t, fs.Parse([]string{"--calibrate", "rapl"}), "want name=factor")
	mustFail(t, fs.Parse([]string{"--calibrate=rapl=x"}), `"x" is not a number`)
	for want, change := range map[string]func(*Config){
		"want only":      func(c *Config) { c.Meters = []string{"auto", "rapl"} },
		"--meters":       func(c *Config) { c.Meters = nil },
		"solar":          func(c *Config) { c.Meters = []string{"solar"} },
		"scaphandre-url": func(c *Config) { c.Meters = []string{"scaphandre"} },
		"kepler-url":     func(c *Config) { c.KeplerURL = "localhost:9102" },
		"factor":         func(c *Config) { c.ScaphandreFactor = -1 },
		"interval":       func(c *Config) { c.ScrapeInterval = time.Millisecond },
		"rapl=100":       func(c *Config) { c.Calibrate = map[string]float64{"rapl": 100} },
		"pakage-0":       func(c *Config) { c.Calibrate = map[string]float64{"pakage-0": 1} },
	} {
		c := DefaultConfig()
		change(&c)
		mustFail(t, c.Validate(), want)
	}
}

// TestOpenWarns verifies that probable configuration errors are logged once.
func TestOpenWarns(t *testing.T) {
	const estimated, calibration = "energy is estimated", "no meter or domain"
	for _, test := range []struct {
		change func(*Config)
		want   []string
	}{
		{func(o *Config) {}, nil},
		{func(o *Config) { o.Calibrate = map[string]float64{"rapl": 1, "package-0": 1, "model": 1} }, nil},
		{func(o *Config) { o.Calibrate = map[string]float64{"package-7": 1} }, []string{calibration, "package-7"}},
		{func(o *Config) { o.Calibrate = map[string]float64{"kepler": 1} }, []string{calibration}},
		{
			func(o *Config) { o.HwmonRoot, o.PowercapRoot, o.GuestDir = "/h", "/p", "/g" },
			[]string{estimated, "/h", "/p", "/g"},
		},
		{func(o *Config) {
			o.HwmonRoot, o.PowercapRoot, o.GuestDir, o.Meters = "/h", "/p", "/g", []string{"model"}
		}, nil},
		{func(o *Config) {
			o.HwmonRoot, o.PowercapRoot, o.GuestDir, o.KeplerURL = "/h", "/p", "/g", "http://127.0.0.1:1/"
			o.Calibrate = map[string]float64{"kepler-package-0": 1}
		}, nil},
	} {
		o := all(t, newClock())
		test.change(&o)
		out := &lockedText{}
		meters, err := Open(o, logTo(out))
		if err != nil {
			t.Fatal(err)
		}
		Close(meters)
		said := strings.Count(out.String(), estimated) + strings.Count(out.String(), calibration)
		if said != min(len(test.want), 1) {
			t.Errorf("want %q once, got %s", test.want, out)
		}
		for _, part := range test.want {
			if !strings.Contains(out.String(), part) {
				t.Errorf("want %q, got %s", part, out)
			}
		}
	}
}

// lockedText is a log that is safe for concurrent use.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestWallSensorNeedsSensors(t *testing.T) {
	o := all(t, newClock())
	o.HwmonRoot, o.WallSensors = "/nowhere", []string{"ina3221/VDD_IN"}
	_, err := Open(o, quiet())
	mustFail(t, err, "ina3221/VDD_IN", "none in /nowhere")
}

func TestDescriptorsStay(t *testing.T) {
	c := newClock()
	o := all(t, c)
	before := descriptors(t)
	for range 50 {
		meters, err := Open(o, quiet())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range meters {
			_, _ = m.Read(c.after(time.Second), nil)
		}
		Close(meters)
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, before %d", after, before)
	}
}
