@group(0) @binding(0) var<storage, read> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
var<workgroup> red: array<f32, 64>;
var<private> rlx_zero: u32;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) rlx_group: vec3<u32>, @builtin(local_invocation_index) rlx_lane: u32) {
  rlx_zero = rlx_group.z;
  let rlx_flat = rlx_group.x;
  let g = i32(rlx_flat);
  let l = i32(rlx_lane);
  red[l] = b0[((g * 64i) + l)];
  workgroupBarrier(); storageBarrier();
  if ((l < 32i)) {
    red[l] = (red[l] + red[(l + 32i)]);
  }
  workgroupBarrier(); storageBarrier();
  if ((l < 16i)) {
    red[l] = (red[l] + red[(l + 16i)]);
  }
  workgroupBarrier(); storageBarrier();
  if ((l < 8i)) {
    red[l] = (red[l] + red[(l + 8i)]);
  }
  workgroupBarrier(); storageBarrier();
  if ((l < 4i)) {
    red[l] = (red[l] + red[(l + 4i)]);
  }
  workgroupBarrier(); storageBarrier();
  if ((l < 2i)) {
    red[l] = (red[l] + red[(l + 2i)]);
  }
  workgroupBarrier(); storageBarrier();
  if ((l < 1i)) {
    red[l] = (red[l] + red[(l + 1i)]);
  }
  workgroupBarrier(); storageBarrier();
  if ((l == 0i)) {
    b1[g] = red[0i];
  }
}
