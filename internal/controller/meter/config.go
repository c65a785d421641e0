package meter

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Kinds of meters.
const (
	KindShelly1 = "shelly1" // first generation; its watt-minute counters are reset at a reboot
	KindShelly2 = "shelly2" // second generation and later
	KindTasmota = "tasmota"
	KindRedfish = "redfish" // the management controller of a server
)

// Authentication methods of Redfish servers.
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
	minInterval     = time.Second
	longestInterval = 10 * time.Minute

	defaultMaxWatts = 50_000 // three phases of 72 A, far above the power of a plug
	maxWatts        = 1e6
)

// Config is the configuration file of meters.
type Config struct {
	Meters []Entry `json:"meters"`
}

// Entry configures a meter of a node. The values of several meters of a node, e.g. of its power supplies, are
// added.
type Entry struct {
	Name string `json:"name,omitempty"` // name in metrics and logs; defaults to the node
	Node string `json:"node"`
	Kind string `json:"kind"`
	URL  string `json:"url"` // scheme and host, e.g. http://192.168.1.85
	// channels of the device to add up; defaults to the only one
	Channels []string `json:"channels,omitempty"`
	Username string   `json:"username,omitempty"` // defaults to admin if there is a password
	// name of the password file in the directory of keys
	PasswordKey string `json:"passwordKey,omitempty"`
	Auth        string `json:"auth,omitempty"` // for redfish: basic (default) or session
	// CA certificates of the server in PEM; defaults to the system's
	CAFile   string           `json:"caFile,omitempty"`
	Interval *metav1.Duration `json:"interval,omitempty"` // defaults to 10s
	Factor   *float64         `json:"factor,omitempty"`   // calibration: ratio of the true to the reported value
	// maximum power of a channel; faster increases of the counter are rejected
	MaxWatts *float64 `json:"maxWatts,omitempty"`
}

// Load reads a configuration file. The error lists all invalid entries.
func Load(path string) (Config, error) {
	text, err := apiclient.ReadFile(path, maxFile)
	if err != nil {
		return Config{}, fmt.Errorf("reading the meter configuration: %w", err)
	}
	c, err := Parse(text)
	if err != nil {
		err = fmt.Errorf("reading the meter configuration %s: %w", path, err)
	}
	return c, err
}

// Parse parses and validates a YAML configuration and sets the defaults. Each entry is parsed separately, so that
// errors include its index.
func Parse(text []byte) (Config, error) {
	var file struct {
		Meters []map[string]any `json:"meters"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return Config{}, err
	}
	if len(file.Meters) > maxMeters {
		return Config{}, fmt.Errorf("%d meters, want at most %d", len(file.Meters), maxMeters)
	}
	c := Config{Meters: make([]Entry, len(file.Meters))}
	var errs []error
	taken := map[string]bool{}
	for i, from := range file.Meters {
		for _, err := range c.Meters[i].read(from, taken) {
			name, _ := cmp.Or(from["name"], from["node"]).(string)
			errs = append(errs, fmt.Errorf("meters[%d] (%.80q): %w", i, name, err))
		}
	}
	return c, errors.Join(errs...)
}

// read parses an entry and returns all validation errors. The map taken contains the names and channels of previous
// entries, which must be unique.
func (e *Entry) read(from map[string]any, taken map[string]bool) []error {
	text, err := yaml.Marshal(from)
	if err == nil {
		err = yaml.UnmarshalStrict(text, e)
	}
	if err != nil {
		return []error{err}
	}
	e.Fill()
	errs := e.Check()
	if taken["name "+e.Name] {
		errs = append(errs, errors.New("duplicate name, want a unique one"))
	}
	taken["name "+e.Name] = true
	places := sliceutil.Map(e.Channels, func(channel string) string { return e.URL + " " + channel })
	if len(places) == 0 {
		places = []string{e.URL}
	}
	for _, place := range places {
		if taken[place] {
			errs = append(errs, errors.New("duplicate url and channel, which would be counted twice"))
		}
		taken[place] = true
	}
	return errs
}

// Fill sets the defaults of empty fields.
func (e *Entry) Fill() {
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

// Check returns all validation errors. Fill must be called before.
func (e *Entry) Check() (errs []error) {
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	short := func(s string) bool { return plain(s) && len(s) <= maxText }
	why := validation.IsDNS1123Subdomain(e.Node)
	bad(len(why) > 0, "invalid node %.80q: %s", e.Node, strings.Join(why, "; "))
	bad(!short(e.Name), "name: want 1 to %d printable characters", maxText)
	_, known := kinds[e.Kind]
	bad(!known, "unknown kind %.40q, want one of %s", e.Kind, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	if err := e.checkURL(); err != nil {
		errs = append(errs, err)
	}
	bad(len(e.Channels) > maxChannels, "%d channels, want at most %d", len(e.Channels), maxChannels)
	for i, channel := range e.Channels {
		bad(!short(channel), "channels[%d]: want 1 to %d printable characters", i, maxText)
	}
	bad(e.Username != "" && !short(e.Username) || strings.Contains(e.Username, ":"),
		"username: want at most %d printable characters and no colon", maxText)
	bad(e.Auth != "" && (e.Kind != KindRedfish || e.Auth != AuthBasic && e.Auth != AuthSession),
		"invalid auth %.40q: %s supports %s and %s, other kinds none", e.Auth, KindRedfish, AuthBasic, AuthSession)
	d := e.Interval.Duration
	bad(d < minInterval || d > longestInterval, "invalid interval %v, want %v to %v", d, minInterval, longestInterval)
	if _, err := energy.Millionths(*e.Factor); err != nil {
		errs = append(errs, err)
	}
	bad(!(*e.MaxWatts > 0 && *e.MaxWatts <= maxWatts), "invalid maxWatts %v, want more than 0, at most %v", *e.MaxWatts,
		float64(maxWatts))
	return errs
}

func (e *Entry) checkURL() error {
	u, err := url.Parse(e.URL)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "": // the parse error may contain a password
		return errors.New("invalid url, want http://host or https://host")
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("url: invalid scheme %.20q, want http or https", u.Scheme)
	case u.User != nil:
		return errors.New("url contains a user or a password: set username and passwordKey instead")
	case u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("url contains a path or a query, want only scheme and host")
	case u.Scheme == "https":
	case e.Kind == KindRedfish && e.PasswordKey != "":
		return errors.New("url: want https, because the password of a management controller is sent over https only")
	case e.CAFile != "":
		return errors.New("caFile requires an https url")
	}
	return nil
}

// plain reports whether a text is not empty and contains only printable ASCII characters.
func plain(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
