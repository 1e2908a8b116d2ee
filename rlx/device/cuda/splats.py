"""Compositing of splats as CUDA C++: a workgroup a tile, a lane a pixel, Gaussians in batches in shared memory."""

from __future__ import annotations

from rlx.device._splats import MIN_ALPHA, Frame

#: Gradients of a place before those of the features: mean x, y, conic xx, xy, yy, opacity.
GEOMETRY = 6
#: Gaussians in a batch of the backward pass at most, and sums of warps: 512 of 14 parts are 28 kB of shared memory.
BATCH, SUMS = 32, 512


def source(f: Frame) -> str:
    """Both kernels, ``forward`` and ``backward``, for one frame."""
    facts = {"W": f.width, "H": f.height, "T": f.tile, "C": f.channels, "N": f.count, "COLUMNS": f.columns,
             "LANES": f.lanes, "WARPS": f.lanes // 32, "BATCH": min(BATCH, SUMS * 32 // f.lanes),
             "PARTS": GEOMETRY + f.channels, "MAX_ALPHA": _float(f.max_alpha), "STOP": _float(f.stop),
             "MIN_ALPHA": _float(MIN_ALPHA)}
    return "\n".join(f"#define {k} {v}" for k, v in facts.items()) + _TEXT


def _float(x: float) -> str:
    return f"{float(x)!r}f"


#: What sigma may be at most where ``opacity exp(-sigma)`` reaches MIN_ALPHA is kept with each Gaussian, a little too
#: large, so that most pixels are done after one comparison. A pixel that is not a number of the threshold is skipped.
_TEXT = """
struct Splat { float x, y, a, b, c, opacity, limit; };

__device__ __forceinline__ Splat fetch(int place, const float* means, const float* conics, const float* opacities,
                                       const int* ids, int* id) {
  unsigned raw = (unsigned)ids[place];
  int g = raw < N ? (int)raw : N - 1;
  *id = g;
  float o = opacities[g];
  return {means[2 * g], means[2 * g + 1], conics[3 * g], conics[3 * g + 1], conics[3 * g + 2], o,
          logf(o / MIN_ALPHA) + 1e-4f};
}

__device__ __forceinline__ bool touches(const Splat& s, float px, float py, float* dx, float* dy, float* fall,
                                        float* alpha) {
  *dx = px - s.x;
  *dy = py - s.y;
  float sigma = 0.5f * (s.a * *dx * *dx + s.c * *dy * *dy) + s.b * *dx * *dy;
  if (!(sigma >= 0.0f && sigma <= s.limit)) return false;
  *fall = expf(-sigma);
  float raw = s.opacity * *fall;
  *alpha = fminf(raw, MAX_ALPHA);
  return raw >= MIN_ALPHA && MAX_ALPHA >= MIN_ALPHA;
}

extern "C" __global__ void __launch_bounds__(LANES) forward(
    const float* __restrict__ means, const float* __restrict__ conics, const float* __restrict__ features,
    const float* __restrict__ opacities, const int* __restrict__ ids, const int* __restrict__ offsets,
    float* __restrict__ image, float* __restrict__ cover) {
  enum { ROOM = LANES < 256 ? LANES : 256 };
  __shared__ Splat splats[ROOM];
  __shared__ float colors[ROOM][C];
  int lane = threadIdx.x, tile = blockIdx.x;
  int x = tile % COLUMNS * T + lane % T, y = tile / COLUMNS * T + lane / T;
  bool inside = x < W && y < H, done = !inside;
  float px = x + 0.5f, py = y + 0.5f, rest = 1.0f, sums[C];
  for (int c = 0; c < C; ++c) sums[c] = 0.0f;
  int end = offsets[tile + 1];
  for (int low = offsets[tile]; low < end; low += ROOM) {
    if (__syncthreads_and(done)) break;
    int count = min(end - low, (int)ROOM), id;
    if (lane < count) {
      splats[lane] = fetch(low + lane, means, conics, opacities, ids, &id);
      for (int c = 0; c < C; ++c) colors[lane][c] = features[id * C + c];
    }
    __syncthreads();
    for (int j = 0; j < count && !done; ++j) {
      float dx, dy, fall, alpha;
      if (!touches(splats[j], px, py, &dx, &dy, &fall, &alpha)) continue;
      float after = rest * (1.0f - alpha), weight = alpha * rest;
      done = after <= STOP;
      if (done) break;
      for (int c = 0; c < C; ++c) sums[c] += weight * colors[j][c];
      rest = after;
    }
  }
  if (!inside) return;
  long long pixel = (long long)y * W + x;
  for (int c = 0; c < C; ++c) image[pixel * C + c] = sums[c];
  cover[pixel] = 1.0f - rest;
}

// The sums over a warp of 16 values, two lanes each: lane l has that of value l / 2. Each exchange halves what is left.
__device__ __forceinline__ float warp_sums(float (&v)[16], int lane) {
#pragma unroll
  for (int half = 8; half > 0; half /= 2) {
    bool high = lane & (2 * half);
#pragma unroll
    for (int k = 0; k < half; ++k) {
      float given = high ? v[k] : v[k + half], kept = high ? v[k + half] : v[k];
      v[k] = kept + __shfl_xor_sync(0xffffffffu, given, 2 * half);
    }
  }
  return v[0] + __shfl_xor_sync(0xffffffffu, v[0], 1);
}

extern "C" __global__ void __launch_bounds__(LANES) backward(
    const float* __restrict__ means, const float* __restrict__ conics, const float* __restrict__ features,
    const float* __restrict__ opacities, const int* __restrict__ ids, const int* __restrict__ offsets,
    const float* __restrict__ d_image, const float* __restrict__ rear, float* __restrict__ out) {
  __shared__ Splat splats[BATCH];
  __shared__ float colors[BATCH][C], sums[WARPS][BATCH][PARTS];
  __shared__ unsigned drawn_by[WARPS];
  int lane = threadIdx.x, warp = lane / 32, tile = blockIdx.x;
  int x = tile % COLUMNS * T + lane % T, y = tile / COLUMNS * T + lane / T;
  bool done = !(x < W && y < H);
  long long pixel = (long long)y * W + x;
  float px = x + 0.5f, py = y + 0.5f, rest = 1.0f, behind = done ? 0.0f : rear[pixel], d[C];
  for (int c = 0; c < C; ++c) d[c] = done ? 0.0f : d_image[pixel * C + c];
  int end = offsets[tile + 1];
  for (int low = offsets[tile]; low < end; low += BATCH) {
    if (__syncthreads_and(done)) break;
    int count = min(end - low, (int)BATCH), id;
    if (lane < count) {
      splats[lane] = fetch(low + lane, means, conics, opacities, ids, &id);
      for (int c = 0; c < C; ++c) colors[lane][c] = features[id * C + c];
    }
    __syncthreads();
    unsigned mask = 0;
    for (int j = 0; j < count; ++j) {
      float dx = 0, dy = 0, fall = 0, alpha = 0;
      const Splat s = splats[j];
      bool drawn = !done && touches(s, px, py, &dx, &dy, &fall, &alpha);
      float through = 1.0f - alpha, after = rest * through;
      if (drawn && after <= STOP) { done = true; drawn = false; }
      if (!__any_sync(0xffffffffu, drawn)) continue;
      float parts[16];
#pragma unroll
      for (int k = 0; k < 16; ++k) parts[k] = 0.0f;
      if (drawn) {
        float weight = alpha * rest, g = 0.0f;
        for (int c = 0; c < C; ++c) g += d[c] * colors[j][c];
        behind -= weight * g;
        float slope = alpha < MAX_ALPHA ? rest * g - behind / through : 0.0f, down = slope * alpha;
        rest = after;
        parts[0] = down * (s.a * dx + s.b * dy);
        parts[1] = down * (s.c * dy + s.b * dx);
        parts[2] = -0.5f * down * dx * dx;
        parts[3] = -down * dx * dy;
        parts[4] = -0.5f * down * dy * dy;
        parts[5] = slope * fall;
#pragma unroll
        for (int c = 0; c < C; ++c) parts[6 + c] = weight * d[c];
      }
      float sum = warp_sums(parts, lane % 32);
      int k = lane % 32 / 2;
      if (lane % 2 == 0 && k < PARTS) sums[warp][j][k] = sum;
      mask |= 1u << j;
    }
    if (lane % 32 == 0) drawn_by[warp] = mask;
    __syncthreads();
    for (int k = lane; k < count * PARTS; k += LANES) {
      float v = 0.0f;
      for (int w = 0; w < WARPS; ++w)
        if (drawn_by[w] >> k / PARTS & 1) v += sums[w][k / PARTS][k % PARTS];
      out[(long long)low * PARTS + k] = v;
    }
  }
}
"""
