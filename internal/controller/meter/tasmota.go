package meter

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// A Tasmota counts kilowatt-hours with so many decimals at most, which is an option of its own; three are usual, a
// step of 3,600 J. So power fills in between.
const (
	kWhDecimals         = 5
	perKWh              = 100_000
	microjoulesPerCount = 3_600_000_000_000 / perKWh
)

// tasmota is a plug with that firmware.
type tasmota struct {
	device   *Device
	channels []string
	old      bool // it is a version that answers Status 8 only
}

// tasmotaStatus is what Status 10 and Status 8 say. Devices of several channels have lists in place of numbers.
type tasmotaStatus struct {
	Warning string `json:"WARNING"` // in place of all else, if it wants a password
	Sensors struct {
		Energy *struct {
			Since string  `json:"TotalStartTime"`
			Total numbers `json:"Total"`
			Power numbers `json:"Power"`
		} `json:"ENERGY"`
	} `json:"StatusSNS"`
}

// numbers are a number, or a list of them.
type numbers struct {
	list   []json.Number
	single bool
}

// UnmarshalJSON reads either.
func (n *numbers) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte("[")) {
		n.single = false
		return json.Unmarshal(text, &n.list)
	}
	n.single, n.list = true, make([]json.Number, 1)
	return json.Unmarshal(text, &n.list[0])
}

func (t *tasmota) read(ctx context.Context) ([]sample, error) {
	samples, err := t.ask(ctx, t.old)
	if err != nil && dial.ReasonOf(err) == dial.ReasonMissing && !t.old {
		if samples, again := t.ask(ctx, true); again == nil {
			t.old = true
			return samples, nil
		}
	}
	return samples, err
}

func (t *tasmota) ask(ctx context.Context, old bool) ([]sample, error) {
	command := "Status 10"
	if old {
		command = "Status 8"
	}
	body, err := t.device.get(ctx, "/cm", url.Values{"cmnd": {command}})
	if err != nil {
		return nil, err
	}
	return t.decode(body)
}

// tasmotaChannel is one channel, or all of a device together.
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
		return nil, dial.Refuse(dial.ReasonAuth, "it wants another user or password")
	}
	e := status.Sensors.Energy
	switch {
	case e == nil || len(e.Total.list) == 0 || e.Total.list[0] == "" || len(e.Power.list) == 0:
		return nil, dial.Refuse(dial.ReasonMissing, "the device does not count energy")
	case len(e.Total.list) > maxChannels || len(e.Power.list) > maxChannels:
		return nil, dial.Refuse(dial.ReasonShape, "more than %d channels", maxChannels)
	}
	found := map[string]tasmotaChannel{}
	switch {
	case e.Total.single:
		found["0"] = tasmotaChannel{e.Total.list[0], e.Power.list, e.Since}
	case len(e.Total.list) != len(e.Power.list):
		return nil, dial.Refuse(dial.ReasonShape, "%d counters of %d channels", len(e.Total.list), len(e.Power.list))
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

// stepOf returns the least step of kilowatt-hours that are written like that, by the digits behind the point.
func stepOf(kWh json.Number) uint64 {
	text, _, _ := strings.Cut(strings.ToLower(string(kWh)), "e")
	_, fraction, _ := strings.Cut(text, ".")
	return uint64(math.Pow10(max(kWhDecimals-len(fraction), 0)))
}
