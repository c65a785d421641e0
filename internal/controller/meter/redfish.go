package meter

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

const (
	redfishRoot = "/redfish/"
	allChassis  = "/redfish/v1/Chassis"
	maxPath     = 512
	maxMembers  = 1000
	maxSupplies = 8
)

// Redfish reads the management controller of a server. It lists the chassis and selects the first available
// resource with energy values: EnvironmentMetrics, which may contain a counter, then the first PowerControl of
// Power or Fujitsu's equivalent, then the power sensor of the whole chassis or the input sensors of all power
// supplies. The result is cached until the resource no longer exists.
//
// A channel is a chassis, e.g. 1U, a chassis with the index of a PowerControl, e.g. 1U#1, or the path of a sensor or
// of the metrics of a power supply.
type Redfish struct {
	Device   *Device
	channels []string
	targets  []target
}

// target is a resource with energy or power values.
type target struct {
	channel string
	path    string
	control int // index of the PowerControl in Power; noControl for other resources
}

const (
	noControl = -1

	configurePaths = "configure as channels the paths of sensors, or of the Metrics of all power supplies, e.g. " +
		"/redfish/v1/Chassis/1/PowerSubsystem/PowerSupplies/0/Metrics"
)

type link struct {
	ID string `json:"@odata.id"`
}

// RedfishCollection is a collection of Redfish resources.
type RedfishCollection struct {
	Members []link `json:"Members"`
}

type redfishChassis struct {
	Environment link `json:"EnvironmentMetrics"`
	Power       link `json:"Power"`
	Sensors     link `json:"Sensors"`
}

// redfishValue contains the fields of all resources with energy or power values. Some servers return numbers as
// strings.
type redfishValue struct {
	PowerControl []struct {
		Watts   *json.Number                                `json:"PowerConsumedWatts"`
		Metrics struct{ AverageConsumedWatts *json.Number } `json:"PowerMetrics"`
	} `json:"PowerControl"`
	Oem struct { // in Power
		Fujitsu fujitsuPower `json:"ts_fujitsu"`
		Fsas    fujitsuPower // newer versions
	}

	EnergykWh, PowerWatts, InputPowerWatts struct{ Reading *json.Number }

	Reading     *json.Number `json:"Reading"`
	ReadingType string       `json:"ReadingType"`
}

// fujitsuPower is the power of the chassis in Fujitsu's iRMC, which may have no PowerControl.
type fujitsuPower struct {
	ChassisPowerConsumption struct{ CurrentPowerConsumptionW *json.Number }
}

func (r *Redfish) read(ctx context.Context) ([]sample, error) {
	if r.targets == nil {
		var err error
		if r.targets, err = r.discover(ctx); err != nil {
			return nil, err
		}
	}
	samples := make([]sample, 0, len(r.targets))
	for _, t := range r.targets {
		var s sample
		body, err := r.Device.get(ctx, t.path, nil)
		if err == nil {
			s, err = t.decode(body)
		}
		if dial.HasStatus(err, http.StatusNotFound) || err != nil && dial.ReasonOf(err) == dial.ReasonMissing {
			r.targets = nil // may have moved with an update
		}
		if err != nil {
			return nil, err
		}
		samples = append(samples, s)
	}
	return samples, nil
}

// decode parses the resource of a target.
func (t target) decode(body []byte) (sample, error) {
	var v redfishValue
	if err := decode(body, &v); err != nil {
		return sample{}, err
	}
	var power, kWh *json.Number
	switch {
	case t.control != noControl:
		if t.control < len(v.PowerControl) {
			power = cmp.Or(v.PowerControl[t.control].Watts, v.PowerControl[t.control].Metrics.AverageConsumedWatts)
		}
		if t.control == 0 {
			power = cmp.Or(power, v.Oem.Fujitsu.ChassisPowerConsumption.CurrentPowerConsumptionW,
				v.Oem.Fsas.ChassisPowerConsumption.CurrentPowerConsumptionW)
		}
		if power == nil && t.control >= len(v.PowerControl) {
			return sample{}, dial.Refuse(dial.ReasonMissing, "%s has %d PowerControls", t.path, len(v.PowerControl))
		}
	case v.ReadingType == "Power":
		power = v.Reading
	case v.ReadingType == "EnergykWh":
		kWh = v.Reading
	case v.ReadingType != "":
		return sample{}, dial.Refuse(dial.ReasonShape, "%s has type %.40q, want Power or EnergykWh", t.path,
			v.ReadingType)
	default:
		power, kWh = cmp.Or(v.PowerWatts.Reading, v.InputPowerWatts.Reading), v.EnergykWh.Reading
	}
	s, err := redfishSample(power, kWh)
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w", t.path, err)
	}
	s.channel = t.channel
	return s, nil
}

func redfishSample(power, kWh *json.Number) (s sample, err error) {
	if power != nil && *power != "" {
		if s.watts, err = watts(power); err != nil {
			return sample{}, err
		}
		s.powered = true
	}
	if kWh != nil && *kWh != "" {
		if s.counts, err = count(kWh, perKWh); err != nil {
			return sample{}, err
		}
		s.counted, s.unit, s.step = true, microjoulesPerCount, stepOf(*kWh)
	}
	if !s.powered && !s.counted {
		return sample{}, dial.Refuse(dial.ReasonMissing, "missing power and energy")
	}
	return s, nil
}

// discover returns the targets of all channels.
func (r *Redfish) discover(ctx context.Context) ([]target, error) {
	var targets []target
	var wanted []string
	for _, channel := range r.channels {
		if SameServer(channel) {
			targets = append(targets, target{channel: channel, path: channel, control: noControl})
			continue
		}
		wanted = append(wanted, channel)
	}
	if len(wanted) == 0 && len(targets) > 0 {
		return targets, nil
	}
	var all RedfishCollection
	if err := r.Resource(ctx, allChassis, &all); err != nil {
		return nil, err
	}
	found := all.named()
	if len(wanted) == 0 {
		if len(found) != 1 {
			return nil, dial.Refuse(dial.ReasonMissing, "%s: configure the chassis of the node", have(found))
		}
		wanted = slices.Collect(maps.Keys(found))
	}
	for _, channel := range wanted {
		name, number, _ := strings.Cut(channel, "#")
		control, err := strconv.Atoi(number)
		if number != "" && (err != nil || control < 0) {
			return nil, dial.Refuse(dial.ReasonMissing, "channel %q: want the index of a PowerControl after #", channel)
		}
		place, ok := found[name]
		if !ok {
			return nil, dial.Refuse(dial.ReasonMissing, "unknown chassis %q, %s", name, have(found))
		}
		of, err := r.chassis(ctx, channel, place, control, number != "")
		if err != nil {
			return nil, err
		}
		targets = append(targets, of...)
	}
	return targets, nil
}

// named returns the members of a collection on the same server, by the last element of their paths.
func (c *RedfishCollection) named() map[string]string {
	found := map[string]string{}
	for i, m := range c.Members {
		if i < maxMembers && SameServer(m.ID) {
			found[path.Base(m.ID)] = m.ID
		}
	}
	return found
}

// chassis returns the targets of a chassis, preferring the most accurate resource.
func (r *Redfish) chassis(ctx context.Context, channel, place string, control int, chosen bool) ([]target, error) {
	var c redfishChassis
	if err := r.Resource(ctx, place, &c); err != nil {
		return nil, err
	}
	candidates := [...]target{
		{channel: channel, path: c.Environment.ID, control: noControl},
		{channel: channel, path: c.Power.ID, control: control},
	}
	for _, t := range candidates {
		if !SameServer(t.path) || chosen && t.control == noControl {
			continue
		}
		body, err := r.Device.get(ctx, t.path, nil)
		if dial.HasStatus(err, http.StatusNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if _, err := t.decode(body); err == nil {
			return []target{t}, nil
		}
	}
	if chosen || !SameServer(c.Sensors.ID) {
		return nil, dial.Refuse(dial.ReasonMissing, "chassis %s reports no power in EnvironmentMetrics, Power or "+
			"Sensors: %s", channel, configurePaths)
	}
	var all RedfishCollection
	if err := r.Resource(ctx, c.Sensors.ID, &all); err != nil {
		return nil, err
	}
	targets := sensors(channel, all.named())
	if len(targets) == 0 {
		return nil, dial.Refuse(dial.ReasonMissing, "chassis %s has no sensor of its whole power: %s", channel,
			configurePaths)
	}
	return targets, nil
}

// supplyInput matches the names of input power sensors of power supplies.
var supplyInput = regexp.MustCompile(`^PS[0-9]{1,2}InputPower$`)

// sensors returns the sensors with the total power of a chassis.
func sensors(channel string, found map[string]string) (targets []target) {
	if total, ok := found["TotalPower"]; ok {
		return []target{{channel: channel, path: total, control: noControl}}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if supplyInput.MatchString(name) {
			targets = append(targets, target{channel: channel + " " + name, path: found[name], control: noControl})
		}
	}
	if len(targets) > maxSupplies {
		return nil
	}
	return targets
}

// Resource reads the resource at a path and unmarshals it.
func (r *Redfish) Resource(ctx context.Context, place string, into any) error {
	body, err := r.Device.get(ctx, place, nil)
	if err != nil {
		return err
	}
	return decode(body, into)
}

// SameServer reports whether a link is a plain path below /redfish/. Responses must not lead to other servers.
func SameServer(place string) bool {
	if len(place) > maxPath || !strings.HasPrefix(place, redfishRoot) || !plain(place) {
		return false
	}
	u, err := url.Parse(place)
	return err == nil && u.Host == "" && u.Scheme == "" && u.RawQuery == "" && u.Fragment == "" &&
		path.Clean(u.Path) == strings.TrimSuffix(u.Path, "/")
}
