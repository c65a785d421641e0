package meter

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// Tasmota reports kilowatt-hours with at most five decimals, depending on its configuration. The default is three,
// i.e. a step of 3,600 J, so the counter is interpolated with the power.
const (
	kWhDecimals         = 5
	perKWh              = 100_000
	microjoulesPerCount = 3_600_000_000_000 / perKWh
)

// tasmota reads plugs with the Tasmota firmware.
type tasmota struct {
	device   *Device
	channels []string
	command  string // the default if empty
}

// tasmotaStatus is the response of Status 10 and Status 8. Devices with several channels return lists instead of
// numbers.
type tasmotaStatus struct {
	Warning string `json:"WARNING"` // the only field if a password is required
	Sensors struct {
		Energy *struct {
			Since string  `json:"TotalStartTime"`
			Total numbers `json:"Total"`
			Power numbers `json:"Power"`
		} `json:"ENERGY"`
	} `json:"StatusSNS"`
}

// numbers is a number or a list of numbers.
type numbers struct {
	list   []json.Number
	single bool
}

// UnmarshalJSON implements json.Unmarshaler for a number or a list.
func (n *numbers) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte("[")) {
		n.single = false
		return json.Unmarshal(text, &n.list)
	}
	n.single, n.list = true, make([]json.Number, 1)
	return json.Unmarshal(text, &n.list[0])
}

func (t *tasmota) read(ctx context.Context) ([]sample, error) {
	const older = "Status 8" // the only command of old versions
	samples, err := t.ask(ctx, cmp.Or(t.command, "Status 10"))
	if err != nil && dial.ReasonOf(err) == dial.ReasonMissing && t.command == "" {
		if samples, again := t.ask(ctx, older); again == nil {
			t.command = older
			return samples, nil
		}
	}
	return samples, err
}

func (t *tasmota) ask(ctx context.Context, command string) ([]sample, error) {
	body, err := t.device.get(ctx, "/cm", url.Values{"cmnd": {command}})
	if err != nil {
		return nil, err
	}
	return t.decode(body)
}

// tasmotaChannel contains the values of a channel, or of the whole device if it has a single counter.
type tasmotaChannel struct {
	total json.Number
	power []json.Number
	since string
}

func (t *tasmota) decode(body []byte) ([]sample, error) {
	var status tasmotaStatus
	if err := decode(body, &status); err != nil {
		return nil, err
	}
	if status.Warning != "" {
		return nil, dial.Refuse(dial.ReasonAuth, "the user or password was rejected")
	}
	e := status.Sensors.Energy
	switch {
	case e == nil || len(e.Total.list) == 0 || e.Total.list[0] == "" || len(e.Power.list) == 0:
		return nil, dial.Refuse(dial.ReasonMissing, "the device has no energy counter")
	case len(e.Total.list) > maxChannels || len(e.Power.list) > maxChannels:
		return nil, dial.Refuse(dial.ReasonShape, "the device has more than %d channels", maxChannels)
	}
	found := map[string]tasmotaChannel{}
	switch {
	case e.Total.single:
		found["0"] = tasmotaChannel{e.Total.list[0], e.Power.list, e.Since}
	case len(e.Total.list) != len(e.Power.list):
		return nil, dial.Refuse(dial.ReasonShape, "%d counters for %d channels", len(e.Total.list), len(e.Power.list))
	default:
		for i, total := range e.Total.list {
			found[strconv.Itoa(i)] = tasmotaChannel{total, e.Power.list[i : i+1], e.Since}
		}
	}
	return choose(t.channels, found, readTasmota)
}

func readTasmota(_ string, c tasmotaChannel) (sample, error) {
	s := sample{powered: true, counted: true, unit: microjoulesPerCount, epoch: c.since}
	for i := range c.power {
		w, err := watts(&c.power[i])
		if err != nil {
			return sample{}, err
		}
		s.watts += w
	}
	var err error
	s.counts, err = count(&c.total, perKWh)
	s.step = stepOf(c.total)
	return s, err
}

// stepOf returns the resolution of a counter in kilowatt-hours, derived from its number of decimals.
func stepOf(kWh json.Number) uint64 {
	text, _, _ := strings.Cut(strings.ToLower(string(kWh)), "e")
	_, fraction, _ := strings.Cut(text, ".")
	return uint64(math.Pow10(max(kWhDecimals-len(fraction), 0)))
}
