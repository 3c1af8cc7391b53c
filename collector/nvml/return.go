//go:build linux && cgo

package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// outcome is what a return code means for whoever made the call.
type outcome uint8

const (
	answered    outcome = iota // there is a value
	nothing                    // an answer too: there is none now
	unsupported                // and will not be soon
	failed                     // this time
	stale                      // the handle may be dead
	lost                       // the GPU is gone or wants a reset
	fatal                      // the driver is gone, or another one came
)

func judge(ret nvml.Return) outcome {
	switch ret {
	case nvml.SUCCESS:
		return answered
	case nvml.ERROR_NOT_FOUND, nvml.ERROR_NO_DATA:
		return nothing
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_NO_PERMISSION, nvml.ERROR_FUNCTION_NOT_FOUND,
		nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.ERROR_DEPRECATED, nvml.ERROR_VGPU_ECC_NOT_SUPPORTED:
		return unsupported
	case nvml.ERROR_INVALID_ARGUMENT:
		return stale
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED:
		return lost
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_UNINITIALIZED:
		return fatal
	default:
		return failed
	}
}

// counted reports whether the code goes into the count of failed calls.
func counted(ret nvml.Return) bool {
	return judge(ret) > unsupported || ret == nvml.ERROR_NO_PERMISSION
}

// text says what a return code means. go-nvml's own text is the driver's memory,
// and asking for it is one more call into a driver that may be sick.
func text(ret nvml.Return) string {
	switch ret {
	case nvml.SUCCESS:
		return "success"
	case nvml.ERROR_UNINITIALIZED:
		return "NVML is not initialized"
	case nvml.ERROR_INVALID_ARGUMENT:
		return "invalid argument or dead handle"
	case nvml.ERROR_NOT_SUPPORTED:
		return "not supported"
	case nvml.ERROR_NO_PERMISSION:
		return "no permission"
	case nvml.ERROR_NOT_FOUND:
		return "not found"
	case nvml.ERROR_INSUFFICIENT_SIZE:
		return "buffer too small"
	case nvml.ERROR_INSUFFICIENT_POWER:
		return "external power cable not attached"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "driver not loaded"
	case nvml.ERROR_TIMEOUT:
		return "timeout in the driver"
	case nvml.ERROR_IRQ_ISSUE:
		return "interrupt problem of the GPU"
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return "library not found"
	case nvml.ERROR_FUNCTION_NOT_FOUND:
		return "function not in this driver"
	case nvml.ERROR_CORRUPTED_INFOROM:
		return "corrupted infoROM"
	case nvml.ERROR_GPU_IS_LOST:
		return "GPU is lost"
	case nvml.ERROR_RESET_REQUIRED:
		return "GPU requires a reset"
	case nvml.ERROR_OPERATING_SYSTEM:
		return "operating system or cgroup blocks the device"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "driver/library version mismatch"
	case nvml.ERROR_IN_USE:
		return "GPU in use"
	case nvml.ERROR_MEMORY:
		return "out of memory in the driver"
	case nvml.ERROR_INSUFFICIENT_RESOURCES:
		return "driver is short of a resource"
	case nvml.ERROR_ARGUMENT_VERSION_MISMATCH:
		return "struct version not in this driver"
	case nvml.ERROR_DEPRECATED:
		return "deprecated"
	case nvml.ERROR_NOT_READY:
		return "not ready"
	case nvml.ERROR_GPU_NOT_FOUND:
		return "no GPU"
	case nvml.ERROR_UNKNOWN:
		return "unknown error"
	default:
		return fmt.Sprintf("NVML error %d", int(ret))
	}
}

// callError is a call that failed, for people.
type callError struct {
	call string
	on   string // what it was about, or empty
	ret  nvml.Return
}

func (e *callError) Error() string {
	s := e.call
	if e.on != "" {
		s += " on " + e.on
	}
	s += ": " + text(e.ret)
	if a := advice(e.ret); a != "" {
		s += "; " + a
	}
	return s
}

func advice(ret nvml.Return) string {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return "install the NVIDIA driver or set the library's path"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "load the nvidia kernel module (nvidia-smi says why it cannot be)"
	case nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return "the driver was upgraded under a running kernel module: reload the module or reboot"
	case nvml.ERROR_NO_PERMISSION:
		return "let this user open /dev/nvidia*"
	case nvml.ERROR_UNINITIALIZED:
		return "the process must start again"
	default:
		return ""
	}
}
