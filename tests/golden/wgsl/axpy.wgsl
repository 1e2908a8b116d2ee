@group(0) @binding(0) var<storage, read> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read_write> b2: array<f32>;
var<private> rlx_zero: u32;
@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) rlx_group: vec3<u32>, @builtin(local_invocation_index) rlx_lane: u32) {
  rlx_zero = rlx_group.z;
  let rlx_flat = rlx_group.x;
  let g = i32(rlx_flat);
  let l = i32(rlx_lane);
  if ((((g * 32i) + l) < 70i)) {
    let o = ((g * 32i) + l);
    b2[o] = ((b0[o] * 2.0f) + b1[o]);
  }
}
