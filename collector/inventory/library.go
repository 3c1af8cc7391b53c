package inventory

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// unknown is the version of what is loaded and does not tell.
const unknown = "unknown"

// library is a shared library by the name of its file.
type library struct {
	component string
	names     []string // without .so and what follows
	families  []string // names that begin so are of it, too
	dists     []string // Python distributions that bring it
}

var libraries = []library{
	{component: "cuda_runtime", names: []string{"libcudart"}, dists: []string{"nvidia_cuda_runtime"}},
	{component: "cudnn", names: []string{"libcudnn"}, families: []string{"libcudnn_"}, dists: []string{"nvidia_cudnn"}},
	{component: "nccl", names: []string{"libnccl"}, dists: []string{"nvidia_nccl"}},
	{component: "cublas", names: []string{"libcublas", "libcublasLt"}, dists: []string{"nvidia_cublas"}},
	{component: "tensorrt", names: []string{"libnvinfer"}, families: []string{"libnvinfer_"}, dists: []string{"tensorrt_libs", "tensorrt"}},
	{component: "libcuda", names: []string{"libcuda"}},
	{component: "torch", names: []string{"libtorch", "libtorch_cpu", "libtorch_cuda", "libc10"}, dists: []string{"torch"}},
	{component: "onnxruntime", names: []string{"libonnxruntime"}, families: []string{"libonnxruntime_"}, dists: []string{"onnxruntime", "onnxruntime_gpu"}},
	{component: "ggml", names: []string{"libggml-cuda", "libggml"}},
}

// framework is a Python package by the directory that its compiled parts lie in.
type framework struct {
	dir       string // below site-packages
	component string
	dists     []string // distributions that bring it; the first is the usual one
	files     []string // that hold its version, below site-packages
	beside    []string // pure Python distributions that it is of no use without
}

var frameworks = []framework{
	{dir: "torch", component: "torch", dists: []string{"torch"}, files: []string{"torch/version.py"}},
	{dir: "jaxlib", component: "jaxlib", dists: []string{"jaxlib"}, files: []string{"jaxlib/version.py"}, beside: []string{"jax"}},
	{dir: "tensorflow", component: "tensorflow", dists: []string{"tensorflow", "tensorflow_gpu", "tensorflow_cpu", "tf_nightly"}},
	{dir: "vllm", component: "vllm", dists: []string{"vllm"}, files: []string{"vllm/_version.py"}},
	{dir: "sgl_kernel", component: "sgl_kernel", dists: []string{"sgl_kernel"}, files: []string{"sgl_kernel/version.py"}, beside: []string{"sglang"}},
	{dir: "triton", component: "triton", dists: []string{"triton", "pytorch_triton"}, files: []string{"triton/__init__.py"}},
	{dir: "onnxruntime", component: "onnxruntime", dists: []string{"onnxruntime", "onnxruntime_gpu"}},
	{dir: "megatron", component: "megatron", dists: []string{"megatron_core"}},
	{dir: "deepspeed", component: "deepspeed", dists: []string{"deepspeed"}, files: []string{"deepspeed/git_version_info_installed.py"}},
	{dir: "transformer_engine", component: "transformer_engine", dists: []string{"transformer_engine"}},
	{dir: "tensorrt_llm", component: "tensorrt_llm", dists: []string{"tensorrt_llm"}, files: []string{"tensorrt_llm/version.py"}},
	{dir: "xformers", component: "xformers", dists: []string{"xformers"}},
	{dir: "flashinfer", component: "flashinfer", dists: []string{"flashinfer_python", "flashinfer"}},
	{dir: "cupy", component: "cupy", dists: []string{"cupy_cuda12x", "cupy_cuda13x", "cupy"}},
	{dir: "llama_cpp", component: "llama_cpp", dists: []string{"llama_cpp_python"}},
	{dir: "ctranslate2", component: "ctranslate2", dists: []string{"ctranslate2"}, files: []string{"ctranslate2/version.py"}},
	{dir: "paddle", component: "paddle", dists: []string{"paddlepaddle_gpu", "paddlepaddle"}, files: []string{"paddle/version/__init__.py"}},
}

// tritonServer is the program of NVIDIA's inference server and the file that has
// its version.
const (
	tritonServer  = "/opt/tritonserver/bin/tritonserver"
	tritonVersion = "/opt/tritonserver/TRITON_VERSION"
)

// engines are the components that serve models, the one that says most first.
var engines = []string{"vllm", "sglang", "tensorrt_llm", "tritonserver", "llama_cpp", "ggml", "ctranslate2"}

// find is what a mapped file is part of.
type find struct {
	mapped
	component string
	soname    string   // version in the file's name, perhaps only the first number of it
	site      string   // directory with Python's packages that it lies below; files are below it, too
	dists     []string // of library and framework
	files     []string // of framework
	beside    []string // of framework
}

// interesting reports whether a mapped file tells of a library or framework.
func interesting(file string) bool { return len(identify(mapped{path: file})) > 0 }

// identify says what a mapped file is part of. A library that a framework brings
// along tells of both.
func identify(m mapped) []find {
	if m.path == tritonServer {
		return []find{{mapped: m, component: "tritonserver", site: "/", files: []string{tritonVersion}}}
	}
	name, version, ok := soname(path.Base(m.path))
	if !ok {
		return nil
	}
	site, below := siteOf(m.path)
	var found []find
	for i := range libraries {
		l := &libraries[i]
		family := slices.ContainsFunc(l.families, func(f string) bool { return strings.HasPrefix(name, f) })
		if family || slices.Contains(l.names, name) {
			found = append(found, find{mapped: m, component: l.component, soname: version, site: site, dists: l.dists})
		}
	}
	dir, _, _ := strings.Cut(below, "/")
	for i := range frameworks {
		f := &frameworks[i]
		if f.dir != dir {
			continue
		}
		j := slices.IndexFunc(found, func(o find) bool { return o.component == f.component })
		if j < 0 {
			j, found = len(found), append(found, find{mapped: m, component: f.component, site: site, dists: f.dists})
		}
		found[j].files, found[j].beside = f.files, f.beside
	}
	return found
}

var (
	libraryName = regexp.MustCompile(`(?s)^(.+?)(?:-[0-9a-f]{8})?\.so((?:\.[0-9]+)*)$`) // a wheel's tools add eight digits
	versionText = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+!_~-]{0,63}$`)
)

// soname splits the name of a shared library's file: libcudart.so.12.8.90 is
// libcudart, 12.8.90.
func soname(base string) (name, version string, ok bool) {
	m := libraryName.FindStringSubmatch(base)
	if m == nil || len(m[2]) > 64 {
		return "", "", false
	}
	return m[1], strings.TrimPrefix(m[2], "."), true
}

// siteOf returns the directory of Python's packages that a file lies in, and the
// path below it. A package that is used where it was built lies in a directory of
// its own name.
func siteOf(file string) (site, below string) {
	at := -1
	for _, name := range []string{"/site-packages/", "/dist-packages/"} {
		if i := strings.LastIndex(file, name); i >= 0 {
			at = max(at, i+len(name))
		}
	}
	if at >= 0 {
		return file[:at], file[at:]
	}
	for i := range frameworks {
		if j := strings.LastIndex(file, "/"+frameworks[i].dir+"/"); j >= 0 {
			return file[:j+1], file[j+1:]
		}
	}
	return "", ""
}

// precise drops what others say better: unknown beside a version, 9 beside 9.10.2.
func precise(versions []string) []string {
	slices.Sort(versions)
	versions = slices.Compact(versions)
	all := slices.Clone(versions)
	return slices.DeleteFunc(versions, func(v string) bool {
		return slices.ContainsFunc(all, func(o string) bool {
			return o != v && o != unknown && (v == unknown || strings.HasPrefix(o, v+"."))
		})
	})
}
