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

// System is a computer system whose power its management controller switches. It is for one goroutine.
type System struct {
	meter.Redfish

	path string

	at    string        // where it was when it was asked last
	state redfishSystem // and what it said
}

// NewSystem returns a system at a path; "": the only one of the server.
func NewSystem(e meter.Entry, path string, d *meter.Deps) (*System, error) {
	e.Fill()
	errs := e.Check()
	if path != "" && !meter.SameServer(path) {
		errs = append(errs, errors.New("system: want a path, as /redfish/v1/Systems/1"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	v, err := meter.NewDevice(&e, d)
	return &System{Redfish: meter.Redfish{Device: v}, path: path}, err
}

// redfishSystem is what is read of a system.
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

// read asks for the system. Where its path is not configured it is looked for once.
func (s *System) read(ctx context.Context) error {
	if s.at = cmp.Or(s.path, s.at); s.at == "" {
		var all meter.RedfishCollection
		if err := s.Resource(ctx, allSystems, &all); err != nil {
			return err
		}
		if len(all.Members) != 1 || !meter.SameServer(all.Members[0].ID) {
			return dial.Refuse(dial.ReasonMissing, "it has %d systems: name one by its path in system",
				len(all.Members))
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

// State says whether the system is on, and which one it is.
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

// On starts the system.
func (s *System) On(ctx context.Context) error { return s.reset(ctx, resetOn) }

// Off asks its operating system to shut down in order.
func (s *System) Off(ctx context.Context) error { return s.reset(ctx, resetGraceful) }

func (s *System) reset(ctx context.Context, kind string) error {
	if s.state.Actions.Reset.Target == "" { // it was not asked just before
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

// Close ends its session.
func (s *System) Close(ctx context.Context) { s.Device.Logout(ctx) }
