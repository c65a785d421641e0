package meter

import (
	"encoding/json"
	"strings"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// shelly2 is a Shelly of the second generation or later. Its counters survive reboots. One request tells of all its
// components: switches and what else has a meter of its own (switch:0, pm1:0, cover:0, light:0), clamps (em1:0), and
// clamps of three phases together (em:0), whose counters stand in components of their own.
type shelly2 struct {
	channels []string
}

type shelly2Component struct {
	Power  *json.Number `json:"apower"`
	Energy struct {
		Total *json.Number `json:"total"` // watt-hours
	} `json:"aenergy"`
	OfClamp *json.Number `json:"act_power"`
	OfThree *json.Number `json:"total_act_power"`
	Errors  []string     `json:"errors"`

	total *json.Number
}

type shelly2Data struct {
	OfClamp *json.Number `json:"total_act_energy"` // watt-hours
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
			continue // it is none that measures
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

func readShelly2(_ string, c *shelly2Component) (sample, error) {
	for _, e := range c.Errors {
		if strings.Contains(e, "power") {
			return sample{}, dial.Refuse(dial.ReasonMissing, "it reports the error %.40q", e)
		}
	}
	s, err := metered(c.Power, c.total, perWattHour, microjoulesPerMilliwattHour)
	s.period = shellyPeriod
	return s, err
}
