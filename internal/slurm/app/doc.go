// Package app is the program kubenergy-slurm: its flags, and what builds and runs its parts.
package app
