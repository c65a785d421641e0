package meter

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// Units of Shelly counters.
const (
	microjoulesPerWattMinute    = 60_000_000
	microjoulesPerMilliwattHour = 3_600_000
	perWattHour                 = 1000 // milliwatt-hours

	// The counters are updated about once a minute.
	shellyPeriod = time.Minute
)

// shelly1 reads first-generation Shelly devices. The counters of relays are reset at each reboot, those of clamps
// are not.
type shelly1 struct {
	channels []string
	uptime   int64
	reboots  int
}

// shelly1Status is the response of /status. Relays without a meter report zero power and no counter, and are
// ignored.
type shelly1Status struct {
	Uptime  int64          `json:"uptime"`
	Meters  []shelly1Meter `json:"meters"`  // total in watt-minutes
	EMeters []shelly1Meter `json:"emeters"` // total in watt-hours
}

type shelly1Meter struct {
	Power   *json.Number `json:"power"`
	IsValid *bool        `json:"is_valid"`
	Total   *json.Number `json:"total"`
}

func (s *shelly1) decode(body []byte) ([]sample, error) {
	var status shelly1Status
	if err := decode(body, &status); err != nil {
		return nil, err
	}
	if status.Uptime < s.uptime {
		s.reboots++
	}
	s.uptime = status.Uptime
	found := map[string]*shelly1Meter{}
	for i := range status.Meters {
		found["meter:"+strconv.Itoa(i)] = &status.Meters[i]
	}
	for i := range status.EMeters {
		found["emeter:"+strconv.Itoa(i)] = &status.EMeters[i]
	}
	maps.DeleteFunc(found, func(_ string, m *shelly1Meter) bool { return m.Total == nil })
	return choose(s.channels, found, s.sample)
}

func (s *shelly1) sample(name string, m *shelly1Meter) (sample, error) {
	if m.IsValid == nil || !*m.IsValid {
		return sample{}, dial.Refuse(dial.ReasonMissing, "the device reports an invalid value")
	}
	unit, perOne := uint64(microjoulesPerWattMinute), 1.0
	epoch := fmt.Sprint("reboot ", s.reboots)
	if name[0] == 'e' {
		unit, perOne, epoch = microjoulesPerMilliwattHour, perWattHour, ""
	}
	v, err := metered(m.Power, m.Total, perOne, unit)
	v.period, v.epoch = shellyPeriod, epoch
	return v, err
}
