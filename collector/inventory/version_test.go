package inventory

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"gpuvigil/internal/metric"

	"github.com/google/go-cmp/cmp"
)

const site = "/opt/venv/lib/python3.12/site-packages/"

// TestVersions maps one file after the other in a root with certain files.
func TestVersions(t *testing.T) {
	f := func(name, path string, files map[string]string, want ...string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			r, _ := within(t, files)
			tell := teller{root: r}
			if diff := cmp.Diff(want, words(tell.parts([]mapped{{path: path}}))); diff != "" {
				t.Errorf("%s (-want +told):\n%s", path, diff)
			}
		})
	}
	dist := func(names ...string) map[string]string {
		files := map[string]string{}
		for _, n := range names {
			files[site+n+".dist-info/METADATA"] = "Metadata-Version: 2.1\nVersion: " + n[strings.IndexByte(n, '-')+1:] + "\n\nVersion: 9\n"
		}
		return files
	}
	f("system library", "/usr/local/cuda-12.8/targets/x86_64-linux/lib/libcudart.so.12.8.90", nil, "cuda_runtime 12.8.90")
	f("driver", "/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06", nil, "libcuda 570.124.06")
	f("light library of cuBLAS", "/usr/lib/libcublasLt.so.12.8.4.1", nil, "cublas 12.8.4.1")
	f("TensorRT's plugins", "/usr/lib/libnvinfer_plugin.so.10.9.0", nil, "tensorrt 10.9.0")
	f("no version at all", "/app/libcudart.so", nil, "cuda_runtime unknown")
	f("another library", "/usr/lib/libcudadebugger.so.1", nil)
	f("no library", "/usr/lib/libcudart.so.12.8.90.txt", nil)

	f("wheel", site+"nvidia/nccl/lib/libnccl.so.2", dist("nvidia_nccl_cu12-2.27.5"), "nccl 2.27.5")
	f("wheel of CUDA 13", site+"nvidia/cu13/lib/libcublas.so.13", dist("nvidia_cublas-13.1.0.3"), "cublas 13.1.0.3")
	f("wheel without its metadata", site+"nvidia/nccl/lib/libnccl.so.2", nil, "nccl 2")
	f("TensorRT's wheel", site+"tensorrt_libs/libnvinfer.so.10", dist("tensorrt_cu12_libs-10.13.3.9"), "tensorrt 10.13.3.9")
	f("bundled into torch's", site+"torch/lib/libcudart-d0da41ae.so.11.0", dist("torch-1.13.1+cu117"), "cuda_runtime 11.0", "torch 1.13.1+cu117")
	f("name with dots and capitals", site+"onnxruntime/capi/libonnxruntime.so.1.22.0", dist("ONNXRuntime.GPU-1.22.0"), "onnxruntime 1.22.0")
	f("jax", site+"jaxlib/_jax.so", dist("jaxlib-0.7.2", "jax-0.7.1"), "jaxlib 0.7.2", "jax 0.7.1")
	f("jaxlib alone", site+"jaxlib/_jax.so", dist("jaxlib-0.7.2"), "jaxlib 0.7.2")
	f("sglang", site+"sgl_kernel/common_ops.abi3.so", dist("sgl_kernel-0.3.14", "sglang-0.5.3"), "sgl_kernel 0.3.14", "sglang 0.5.3")
	f("tensorflow of a distribution", "/usr/lib/python3/dist-packages/tensorflow/libtensorflow_cc.so.2", map[string]string{"usr/lib/python3/dist-packages/tensorflow-2.19.0.dist-info/RECORD": ""}, "tensorflow 2.19.0")
	f("megatron", site+"megatron/core/datasets/helpers_cpp.so", dist("megatron_core-0.14.0"), "megatron 0.14.0")

	f("version file", site+"torch/_C.cpython-312-x86_64-linux-gnu.so", map[string]string{site + "torch/version.py": "from typing import Optional\n__version__ = '2.8.0a0+5228986'\ncuda: Optional[str] = '12.9'\n"}, "torch 2.8.0a0+5228986")
	f("where it was built", "/workspace/vllm/vllm/_C.abi3.so", map[string]string{"workspace/vllm/vllm/_version.py": "__version__ = version = '0.11.1.dev3+g1a2b3c'\n"}, "vllm 0.11.1.dev3+g1a2b3c")
	f("typed assignment", site+"vllm/_C.abi3.so", map[string]string{site + "vllm/_version.py": "version: str\n__version__: str = \"0.9.2\"\n"}, "vllm 0.9.2")
	f("Triton's server", tritonServer, map[string]string{tritonVersion: "2.59.0\n"}, "tritonserver 2.59.0")

	f("upgrade left the old directory", site+"torch/lib/libc10.so", map[string]string{
		site + "torch-2.9.1.dist-info/METADATA": "Version: 2.9.1\n", site + "torch-2.8.0.dist-info/RECORD": ""}, "torch 2.9.1")
	f("two that both claim it", site+"torch/lib/libc10.so", dist("torch-2.9.1", "torch-2.8.0"), "torch unknown")
	f("hostile version", site+"torch/lib/libc10.so", map[string]string{
		site + "torch-<script>.dist-info/METADATA": "", site + "torch/version.py": "__version__ = '\x1b[2J'\n"}, "torch unknown")
	f("version file without end", site+"torch/lib/libc10.so", map[string]string{site + "torch/version.py": strings.Repeat("#", 2*maxVersionFile) + "\n__version__ = '1.0'\n"}, "torch unknown")
}

func TestPreciseVersions(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		if got := strings.Join(precise(strings.Fields(in)), " "); got != want {
			t.Errorf("of %q remains %q, want %q", in, got, want)
		}
	}
	f("9 9.10.2 unknown", "9.10.2")
	f("unknown", "unknown")
	f("11.8.89 12.8.90 12", "11.8.89 12.8.90")
	f("9 90", "9 90")
}

func TestAProcessWithTwoRuntimesHasBoth(t *testing.T) {
	r, _ := within(t, nil)
	tell := teller{root: r}
	got := words(tell.parts([]mapped{{path: "/a/libcudart.so.12.8.90"}, {path: "/b/libcudart.so.11.8.89"}, {path: "/c/libcudart.so"}}))
	if !slices.Equal(got, []string{"cuda_runtime 11.8.89", "cuda_runtime 12.8.90"}) {
		t.Errorf("a process with two CUDA runtimes is told to have %q", got)
	}
}

func FuzzVersionTexts(f *testing.F) {
	f.Add([]byte("Name: torch\nVersion: 2.9.1\n\n"), "torch-2.9.1.dist-info")
	f.Add([]byte("__version__ = version = '0.11.0'\n"), "a-b-.dist-info")
	f.Fuzz(func(t *testing.T, text []byte, dir string) {
		for _, v := range []string{metadataVersion(text), pythonVersion(text)} {
			if v != "" && !versionText.MatchString(v) {
				t.Fatalf("%q gives the version %q", text, v)
			}
		}
		if d, ok := parseDist(dir); ok && (d.name == "" || !versionText.MatchString(d.version)) {
			t.Fatalf("%q is taken for %+v", dir, d)
		}
	})
}

// The configuration may name the components that are looked for, and no others.
func TestComponentsAreThoseOfTheCatalogue(t *testing.T) {
	found := map[string]bool{"tritonserver": true}
	for _, l := range libraries {
		found[l.component] = true
	}
	for _, f := range frameworks {
		found[f.component] = true
		for _, beside := range f.beside {
			found[beside] = true
		}
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, slices.Sorted(slices.Values(metric.RuntimeParts))) {
		t.Errorf("components that are looked for: %q, the catalogue has %q", got, metric.RuntimeParts)
	}
}
