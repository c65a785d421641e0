package energy_test

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

func ExampleProfile_Power() {
	server := energy.Profile{Idle: 60, Max: 160}
	half := server.Power(0.5)
	fmt.Println(half, "W,", half.For(2*time.Hour))
	// Output: 110 W, 0.22 kWh
}
