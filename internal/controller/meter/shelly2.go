package meter

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// shelly2 reads Shelly devices of the second generation and later. Their counters are not reset at a reboot. A
// single request returns all components: switches and other components with a meter (switch:0, pm1:0, cover:0,
// light:0), clamps (em1:0), and three-phase clamps (em:0). The counters of clamps are in separate components.
type shelly2 struct {
	channels []string
}

type shelly2Component struct {
	Power  *json.Number `json:"apower"`
	Energy struct {
		Total *json.Number `json:"total"` // in watt-hours
	} `json:"aenergy"`
	OfClamp *json.Number `json:"act_power"`
	OfThree *json.Number `json:"total_act_power"`
	Errors  []string     `json:"errors"`

	total *json.Number
}

type shelly2Data struct {
	OfClamp *json.Number `json:"total_act_energy"` // in watt-hours
	OfThree *json.Number `json:"total_act"`
}

func (s *shelly2) decode(body []byte) ([]sample, error) {
	var status map[string]json.RawMessage
	if err := decode(body, &status); err != nil {
		return nil, err
	}
	found := map[string]*shelly2Component{}
	for name, text := range status {
		kind, id, numbered := strings.Cut(name, ":")
		if !numbered || strings.HasSuffix(kind, "data") {
			continue
		}
		c := new(shelly2Component)
		if json.Unmarshal(text, c) != nil {
			continue // not a metering component
		}
		switch kind {
		case "em", "em1":
			var data shelly2Data
			if text, ok := status[kind+"data:"+id]; ok {
				if err := decode(text, &data); err != nil {
					return nil, err
				}
			}
			c.Power, c.total = c.OfClamp, data.OfClamp
			if kind == "em" {
				c.Power, c.total = c.OfThree, data.OfThree
			}
		default:
			c.total = c.Energy.Total
		}
		if c.total != nil {
			found[name] = c
		}
	}
	return choose(s.channels, found, readShelly2)
}

// shelly2Failure matches errors of the measurement. Other errors, such as overpower, are those of the relay, and
// leave the counter valid.
var shelly2Failure = regexp.MustCompile(`^(power_meter_failure|ct_type_not_set|out_of_range:(a|act_|total_act_)power)$`)

func readShelly2(_ string, c *shelly2Component) (sample, error) {
	for _, e := range c.Errors {
		if shelly2Failure.MatchString(e) {
			return sample{}, dial.Refuse(dial.ReasonMissing, "the device reports the error %.40q", e)
		}
	}
	s, err := metered(c.Power, c.total, perWattHour, microjoulesPerMilliwattHour)
	s.period = shellyPeriod
	return s, err
}
