package meter

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const everyKind = `meters:
- node: worker1
  kind: shelly1
  url: http://192.168.1.81
  passwordKey: plug1
- node: worker2
  kind: shelly2
  url: http://plug2.lan/
  channels: ["switch:0", "switch:1"]
  username: admin
  passwordKey: plug2
  interval: 5s
  factor: 1.02
  maxWatts: 3680
- name: worker3-tasmota
  node: worker3
  kind: tasmota
  url: http://[fd12::7]:8080
- node: worker4.example.com
  kind: redfish
  url: https://bmc4.lan
  auth: session
  username: monitor
  passwordKey: bmc4
`

func TestConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meters.yaml")
	if err := os.WriteFile(path, []byte(everyKind), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	first, second, last := c.Meters[0], c.Meters[1], c.Meters[3]
	if first.Name != "worker1" || first.Username != "admin" || first.Interval.Duration != 10*time.Second ||
		*first.Factor != 1 || *first.MaxWatts != defaultMaxWatts {
		t.Errorf("%+v", first)
	}
	if second.URL != "http://plug2.lan" || second.Interval.Duration != 5*time.Second || *second.Factor != 1.02 ||
		last.Auth != AuthSession {
		t.Errorf("%+v, %+v", second, last)
	}
	if _, err := New(c, Deps{}); err != nil {
		t.Error(err)
	}
	if _, err := Load("/dev/null"); err == nil {
		t.Error("Load() of a device file: expected an error")
	}
	if c, err := Parse(nil); err != nil || len(c.Meters) != 0 {
		t.Errorf("Parse() of an empty file = %+v, %v", c, err)
	}
}

func TestConfigErrors(t *testing.T) {
	const good = "node: w, kind: shelly2, url: 'http://x'"
	for text, want := range map[string]string{
		"{" + good + ", colour: red}":                                      "colour",
		"{" + good + ", node: m}":                                          "node",
		"{node: 'N N', kind: shelly2, url: 'http://x'}":                    "invalid node",
		"{kind: shelly2, url: 'http://x'}":                                 "invalid node",
		"{node: w, kind: shelly9, url: 'http://x'}":                        "unknown kind",
		"{node: w, kind: shelly2, url: 'ftp://x'}":                         "scheme",
		"{node: w, kind: shelly2, url: '::x'}":                             "url",
		"{node: w, kind: shelly2, url: 'http://u:s3same@x'}":               "user",
		"{node: w, kind: shelly2, url: 'http://x/rpc'}":                    "path",
		"{node: w, kind: shelly2, url: 'http://x?a=s3same'}":               "query",
		"{node: w, kind: shelly2, url: 'http://s3same:x:y'}":               "invalid url",
		"{node: w, kind: redfish, url: 'http://x', passwordKey: p}":        "https only",
		"{" + good + ", interval: 10ms}":                                   "interval",
		"{" + good + ", interval: 10h}":                                    "interval",
		"{" + good + ", interval: soon}":                                   "duration",
		"{" + good + ", factor: 0}":                                        "factor",
		"{" + good + ", factor: -1}":                                       "factor",
		"{" + good + ", maxWatts: 0}":                                      "maxWatts",
		"{" + good + ", channels: ['a', 'a']}":                             "duplicate",
		"{" + good + ", channels: ['']}":                                   "channels[0]",
		"{" + good + ", auth: session}":                                    "auth",
		"{" + good + ", caFile: /x}":                                       "caFile",
		"{" + good + ", username: 'a:b'}":                                  "username",
		"{" + good + `, name: "a\nb"}`:                                     "name",
		"{" + good + "}, {" + good + "}":                                   "counted twice",
		"{" + good + "}, {" + strings.Replace(good, "//x", "//y", 1) + "}": "duplicate name",
	} {
		_, err := Parse([]byte("meters: [" + text + "]"))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3same") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	_, err := Parse([]byte("meters: [{" + good + "}, {node: m, kind: x, url: 'http://y'}]"))
	if err == nil || !strings.Contains(err.Error(), `meters[1] ("m")`) {
		t.Errorf("the error does not contain the index: %v", err)
	}
	_,
		err = Parse([]byte("meters: [{" + good +
		"}, {node: m, kind: shelly2, url: 'http://y', pue: 1.2}, {name: left, node: m, interval: soon}]"))
	if err == nil || !strings.Contains(err.Error(), `meters[1] ("m")`) || !strings.Contains(err.Error(), `"pue"`) ||
		!strings.Contains(err.Error(), `meters[2] ("left")`) {
		t.Errorf("the error does not contain the entries with unknown keys: %v", err)
	}
	if _, err := Parse([]byte("meters: [" + strings.Repeat("{},", maxMeters+1) + "]")); err == nil ||
		len(err.Error()) > 200 {
		t.Errorf("too many meters: %.300v", err)
	}
	dir := t.TempDir()
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{big, filepath.Join(dir, "absent"), dir} {
		if _, err := Load(path); err == nil {
			t.Errorf("Load(%s): expected an error", path)
		}
	}
	for _, ca := range []string{big, filepath.Join(dir, "absent")} {
		c, err := Parse([]byte("meters: [{node: w, kind: redfish, url: 'https://x', caFile: " + ca + "}]"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := New(c, Deps{}); err == nil || !strings.Contains(err.Error(), `meters[0] ("w")`) {
			t.Errorf("caFile %s: %v", ca, err)
		}
	}
}

// TestChartKnowsAllKinds verifies that the schema of the chart accepts exactly the supported kinds.
func TestChartKnowsAllKinds(t *testing.T) {
	text, err := os.ReadFile("../../../charts/kubenergy/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct {
			Meters struct {
				Items struct {
					Properties struct{ Kind struct{ Enum []string } }
				}
			}
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	if got, want := schema.Properties.Meters.Items.Properties.Kind.Enum,
		slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, want) {
		t.Errorf("got %q in values.schema.json, want %q", got, want)
	}
}
