package power

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/controller/meter"
)

const (
	allSystems    = "/redfish/v1/Systems"
	resetOn       = "On"
	resetGraceful = "GracefulShutdown"
)

// System is a computer system that is powered on and off by Redfish. It is not safe for concurrent use.
type System struct {
	meter.Redfish

	path string

	at    string        // path of the system in the last request
	state redfishSystem // response to the last request
}

// NewSystem returns the system at the given path, or the only system of the server if path is empty.
func NewSystem(e meter.Entry, path string, d *meter.Deps) (*System, error) {
	e.Fill()
	errs := e.Check()
	if path != "" && !meter.SameServer(path) {
		errs = append(errs, errors.New("system: want a path, e.g. /redfish/v1/Systems/1"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	v, err := meter.NewDevice(&e, d)
	return &System{Redfish: meter.Redfish{Device: v}, path: path}, err
}

// redfishSystem contains the used fields of a ComputerSystem resource.
type redfishSystem struct {
	PowerState string `json:"PowerState"`
	UUID       string `json:"UUID"`
	Actions    struct {
		Reset struct {
			Target string   `json:"target"`
			Types  []string `json:"ResetType@Redfish.AllowableValues"`
		} `json:"#ComputerSystem.Reset"`
	} `json:"Actions"`
}

// read reads the system. If no path is configured, it finds the system first.
func (s *System) read(ctx context.Context) error {
	if s.at = cmp.Or(s.path, s.at); s.at == "" {
		var all meter.RedfishCollection
		if err := s.Resource(ctx, allSystems, &all); err != nil {
			return err
		}
		if len(all.Members) != 1 || !meter.SameServer(all.Members[0].ID) {
			return dial.Refuse(dial.ReasonMissing, "it has %d systems: set system to the path of one", len(all.Members))
		}
		s.at = all.Members[0].ID
	}
	s.state = redfishSystem{}
	err := s.Resource(ctx, s.at, &s.state)
	if err != nil {
		s.at = ""
	}
	return err
}

// State returns the power state and the UUID of the system.
func (s *System) State(ctx context.Context) (on bool, uuid string, err error) {
	if err := s.read(ctx); err != nil {
		return false, "", err
	}
	switch v := &s.state; v.PowerState {
	case "On", "PoweringOn", "PoweringOff":
		return true, v.UUID, nil
	case "Off":
		return false, v.UUID, nil
	}
	return false, "", dial.Refuse(dial.ReasonShape, "%s: PowerState is %.40q: want On or Off", s.at, s.state.PowerState)
}

// On powers the system on.
func (s *System) On(ctx context.Context) error { return s.reset(ctx, resetOn) }

// Off requests a graceful shutdown of the operating system.
func (s *System) Off(ctx context.Context) error { return s.reset(ctx, resetGraceful) }

func (s *System) reset(ctx context.Context, kind string) error {
	if s.state.Actions.Reset.Target == "" { // not read immediately before
		if err := s.read(ctx); err != nil {
			return err
		}
	}
	reset := s.state.Actions.Reset
	s.state = redfishSystem{}
	if !meter.SameServer(reset.Target) || len(reset.Types) > 0 && !slices.Contains(reset.Types, kind) {
		return dial.Refuse(dial.ReasonMissing, "%s has no action ComputerSystem.Reset of type %s", s.at, kind)
	}
	payload, err := json.Marshal(map[string]string{"ResetType": kind})
	if err != nil {
		return err
	}
	_, err = s.Device.Ask(ctx, http.MethodPost, reset.Target, nil, payload)
	return err
}

// Close ends the session.
func (s *System) Close(ctx context.Context) { s.Device.Logout(ctx) }
