package meter

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/energy"
)

// The kinds of meters.
const (
	KindShelly1 = "shelly1" // first generation: watt-minutes, which are lost at a reboot
	KindShelly2 = "shelly2" // second generation and later
	KindTasmota = "tasmota"
	KindRedfish = "redfish" // the management controller of a server
)

var kinds = []string{KindShelly1, KindShelly2, KindTasmota, KindRedfish}

// How a Redfish server is told who asks.
const (
	AuthBasic   = "basic"
	AuthSession = "session"
)

const (
	maxFile     = 1 << 20
	maxMeters   = 2000
	maxChannels = 16
	maxText     = 256

	defaultInterval = 10 * time.Second
	leastInterval   = time.Second
	longestInterval = 10 * time.Minute

	defaultMaxWatts = 50_000 // three phases of 72 A; a plug stays far below
	mostWatts       = 1e6
)

// Config is the file of meters.
type Config struct {
	Meters []Entry `json:"meters"`
}

// Entry is one meter of one node. A node may have several, as one at each of its power supplies: they are added.
type Entry struct {
	Name string `json:"name,omitempty"` // in metrics and logs; by default the node
	Node string `json:"node"`
	Kind string `json:"kind"`
	URL  string `json:"url"` // scheme and host, as http://192.168.1.85
	// of the device; they are added. By default the only one
	Channels []string `json:"channels,omitempty"`
	Username string   `json:"username,omitempty"` // by default admin, where there is a password
	// name of the file with the password in the folder of keys
	PasswordKey string `json:"passwordKey,omitempty"`
	Auth        string `json:"auth,omitempty"` // of redfish: basic, by default, or session
	// certificates that verify the server, in PEM; by default the system's
	CAFile   string           `json:"caFile,omitempty"`
	Interval *metav1.Duration `json:"interval,omitempty"` // 10s by default
	Factor   *float64         `json:"factor,omitempty"`   // calibration: what is true over what it says
	// the most that a channel can draw: a counter that says more is not believed
	MaxWatts *float64 `json:"maxWatts,omitempty"`
}

// Load reads a file of meters. The error names every entry that is wrong.
func Load(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("reading the file of meters: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("longer than %d bytes", maxFile)
	}
	if err != nil {
		return Config{}, fmt.Errorf("reading the file of meters %s: %w", path, err)
	}
	c, err := Parse(text)
	if err != nil {
		err = fmt.Errorf("reading the file of meters %s: %w", path, err)
	}
	return c, err
}

// Parse reads meters in YAML, strictly, and completes them.
func Parse(text []byte) (Config, error) {
	var c Config
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return Config{}, cmp.Or(entryError(text), err)
	}
	return c, c.complete()
}

// entryError names the entries of a file that cannot be read: the error of the whole does not say where it is. nil:
// it is none of them alone.
func entryError(text []byte) error {
	var file struct {
		Meters []map[string]any `json:"meters"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil || len(file.Meters) > maxMeters {
		return nil
	}
	var errs []error
	for i, entry := range file.Meters {
		alone, err := yaml.Marshal(entry)
		if err == nil {
			err = yaml.UnmarshalStrict(alone, new(Entry))
		}
		if err != nil {
			name, _ := cmp.Or(entry["name"], entry["node"]).(string)
			errs = append(errs, fmt.Errorf("meters[%d] (%.80q): %w", i, name, err))
		}
	}
	return errors.Join(errs...)
}

// complete fills in what entries do not say, and checks them.
func (c *Config) complete() error {
	if len(c.Meters) > maxMeters {
		return fmt.Errorf("%d meters: at most %d", len(c.Meters), maxMeters)
	}
	var errs []error
	names, places := map[string]bool{}, map[string]bool{}
	for i := range c.Meters {
		e := &c.Meters[i]
		e.fill()
		found := e.check()
		if names[e.Name] {
			found = append(found, errors.New("the name appears twice: give the second one another"))
		}
		names[e.Name] = true
		if slices.ContainsFunc(e.places(), func(place string) bool { return places[place] }) {
			found = append(found, errors.New("another entry has the same url and channel: it would be counted twice"))
		}
		for _, place := range e.places() {
			places[place] = true
		}
		for _, err := range found {
			errs = append(errs, fmt.Errorf("meters[%d] (%.80q): %w", i, e.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (e *Entry) fill() {
	e.Name = cmp.Or(e.Name, e.Node)
	e.Interval = cmp.Or(e.Interval, &metav1.Duration{Duration: defaultInterval})
	e.Factor = cmp.Or(e.Factor, new(1.0))
	e.MaxWatts = cmp.Or(e.MaxWatts, new(float64(defaultMaxWatts)))
	if e.Username == "" && e.PasswordKey != "" {
		e.Username = "admin"
	}
	if e.Auth == "" && e.Kind == KindRedfish {
		e.Auth = AuthBasic
	}
	e.URL = strings.TrimRight(e.URL, "/")
}

// places are what must not be counted twice.
func (e *Entry) places() []string {
	if len(e.Channels) == 0 {
		return []string{e.URL}
	}
	all := make([]string, len(e.Channels))
	for i, channel := range e.Channels {
		all[i] = e.URL + " " + channel
	}
	return all
}

func (e *Entry) check() []error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if why := validation.IsDNS1123Subdomain(e.Node); len(why) > 0 {
		bad("node is %.80q: %s", e.Node, why[0])
	}
	if len(e.Name) > maxText || !plain(e.Name) {
		bad("name: want 1 to %d printable characters", maxText)
	}
	if !slices.Contains(kinds, e.Kind) {
		bad("kind is %.40q: have %s", e.Kind, strings.Join(kinds, ", "))
	}
	errs = slices.Concat(errs, e.checkURL(), e.checkChannels(), e.checkLogin())
	if d := e.Interval.Duration; d < leastInterval || d > longestInterval {
		bad("interval is %v: want %v to %v", d, leastInterval, longestInterval)
	}
	if _, err := energy.Millionths(*e.Factor); err != nil {
		errs = append(errs, err)
	}
	if w := *e.MaxWatts; !(w > 0 && w <= mostWatts) {
		bad("maxWatts is %v: want more than 0, at most %v", w, float64(mostWatts))
	}
	return errs
}

func (e *Entry) checkLogin() (errs []error) {
	if e.Username != "" && !plain(e.Username) || len(e.Username) > maxText || strings.Contains(e.Username, ":") {
		errs = append(errs, fmt.Errorf("username: want at most %d printable characters, none a colon", maxText))
	}
	if e.Auth != "" && (e.Kind != KindRedfish || e.Auth != AuthBasic && e.Auth != AuthSession) {
		errs = append(errs, fmt.Errorf("auth is %.40q: %s has %s and %s, others know one way each", e.Auth, KindRedfish,
			AuthBasic, AuthSession))
	}
	return errs
}

func (e *Entry) checkURL() []error {
	u, err := url.Parse(e.URL)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "": // its text may have a password in it
		return []error{errors.New("url cannot be read: want http://host or https://host")}
	case !slices.Contains([]string{"http", "https"}, u.Scheme):
		return []error{fmt.Errorf("url: the scheme is %.20q: want http or https", u.Scheme)}
	case u.User != nil:
		return []error{errors.New(
			"url has a user or a password in it: name the user as username and the password's file as passwordKey")}
	}
	switch {
	case u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return []error{errors.New("url has a path or a query: want scheme and host alone, the rest is known")}
	case e.Kind == KindRedfish && u.Scheme != "https" && e.PasswordKey != "":
		return []error{errors.New("url: the password of a server's management is sent over https only")}
	case e.CAFile != "" && u.Scheme != "https":
		return []error{errors.New("caFile without https")}
	}
	return nil
}

func (e *Entry) checkChannels() []error {
	if len(e.Channels) > maxChannels {
		return []error{fmt.Errorf("%d channels: at most %d", len(e.Channels), maxChannels)}
	}
	for i, channel := range e.Channels {
		if channel == "" || len(channel) > maxText || !plain(channel) {
			return []error{fmt.Errorf("channels[%d]: want 1 to %d printable characters", i, maxText)}
		}
		if slices.Contains(e.Channels[:i], channel) {
			return []error{fmt.Errorf("channels[%d]: %q is there twice", i, channel)}
		}
	}
	return nil
}

// plain reports whether a text is one to print.
func plain(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
