//go:build !race

package cli_test

const slower = 1
